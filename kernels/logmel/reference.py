"""The truth: the definition in spec.py, written out in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hailmesh.kernels.logmel.spec import BANDS, HOP, RATE, WINDOW, padded_samples
from hailmesh.kernels.spec import Args, Array


def _mel(hertz: float) -> float:
    """Slaney's mel scale (Auditory Toolbox, 1998): linear below 1 kHz, logarithmic above."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def _hertz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


def filters() -> Array:
    """float64 [80, 201]: each band's triangle over the bins of the spectrum, of area 1."""
    top = _mel(RATE / 2)
    edges = [_hertz(top * index / (BANDS + 1)) for index in range(BANDS + 2)]
    matrix = np.zeros((BANDS, WINDOW // 2 + 1))
    for band, (low, centre, high) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for k in range(WINDOW // 2 + 1):
            frequency = k * RATE / WINDOW
            slope = min((frequency - low) / (centre - low), (high - frequency) / (high - centre))
            matrix[band, k] = max(0.0, slope) * 2 / (high - low)
    return matrix


def compute(args: Args, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """See spec.py."""
    (given,) = inputs
    total = padded_samples(args, len(given))
    samples = np.zeros(total)
    samples[: len(given)] = given
    reflected = np.pad(samples, WINDOW // 2, mode="reflect")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    frames = [reflected[start : start + WINDOW] * hann for start in range(0, total // HOP * HOP, HOP)]
    power = np.abs(np.fft.rfft(np.array(frames), axis=1)) ** 2
    log = np.log10(np.maximum(filters() @ power.T, 1e-10))
    return (((np.maximum(log, log.max() - 8) + 4) / 4)[None],)
