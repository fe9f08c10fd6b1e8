"""What the references share."""

from __future__ import annotations

import math

import numpy as np

from hailmesh.oci.convert.quant import F32


def softmax(x: F32) -> F32:
    """Along the last axis."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    shares: F32 = grown / grown.sum(-1, keepdims=True)
    return shares


def erf(x: F32) -> F32:
    """The error function, to 1.2e-7 (Numerical Recipes, erfc by a Chebyshev fit)."""
    fit = (
        -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
        -0.82215223, 0.17087277,
    )  # fmt: skip
    magnitude = np.abs(x.astype(np.float64))
    t = 1 / (1 + magnitude / 2)
    tail = t * np.exp(-magnitude * magnitude + np.polynomial.polynomial.polyval(t, fit))
    return (np.sign(x) * (1 - tail)).astype(np.float32)


def gelu(x: F32) -> F32:
    """The exact GELU, x·Φ(x)."""
    result: F32 = (x * np.float32(0.5) * (1 + erf(x / np.float32(math.sqrt(2))))).astype(np.float32)
    return result


def layer_norm(x: F32, gamma: F32, beta: F32, epsilon: float = 1e-5) -> F32:
    """Along the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    normed: F32 = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + epsilon) * gamma + beta
    return normed


def rms_norm(x: F32, weight: F32, epsilon: float) -> F32:
    """Along the last axis."""
    normed: F32 = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(epsilon)) * weight
    return normed


def attention(query: F32, keys: F32, values: F32, *, causal: bool) -> F32:
    """Scaled dot-product attention over [heads, S, head size]; keys and values may have fewer heads."""
    repeats = len(query) // len(keys)
    keys, values = np.repeat(keys, repeats, 0), np.repeat(values, repeats, 0)
    scores = query @ keys.transpose(0, 2, 1) * np.float32(query.shape[-1] ** -0.5)
    if causal:
        scores = scores + np.triu(np.full(scores.shape[1:], -1e9, np.float32), 1)
    mixed: F32 = softmax(scores) @ values
    return mixed


def split_heads(x: F32, heads: int) -> F32:
    """[S, width] → [heads, S, head size]"""
    apart: F32 = x.reshape(len(x), heads, -1).transpose(1, 0, 2)
    return apart


def join_heads(x: F32) -> F32:
    """[heads, S, head size] → [S, width]"""
    joined: F32 = x.transpose(1, 0, 2).reshape(x.shape[1], -1)
    return joined
