"""Block quantization in the layouts of onnxruntime's MatMulNBits and GatherBlockQuantized.

Weights are [N, K] (out, in) and are cut into blocks of 32 along K. 4-bit values lie two to a byte, the
even one in the low half; 8-bit values one to a byte. Zero points are laid out the same way along the block
axis. Source: the operator descriptions of domain com.microsoft in onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 32

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def blocks_of(width: int) -> int:
    """How many blocks cover `width` values."""
    return -(-width // BLOCK)


def pack_nibbles(values: U8) -> U8:
    """Values 0 to 15 along the last axis (padded to an even count), packed two to a byte."""
    if values.shape[-1] % 2:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)])
    packed: U8 = values[..., 0::2] | (values[..., 1::2] << np.uint8(4))
    return packed


def in_blocks(weights: F32) -> F32:
    """[N, K] → [N, blocks, 32], the last block padded with zeros."""
    rows, width = weights.shape
    blocks = blocks_of(width)
    padded = np.pad(weights, ((0, 0), (0, blocks * BLOCK - width)))
    return padded.reshape(rows, blocks, BLOCK)


def asymmetric_4bit(weights: F32) -> tuple[U8, F32, U8]:
    """Values [N, blocks, 32] in 0 to 15, scales [N, blocks] and zero points [N, blocks], unpacked.

    A weight is (value − zero point) · scale. The range always holds 0, so padding stays exact.
    """
    parts = in_blocks(weights)
    low = np.minimum(parts.min(-1), 0)
    high = np.maximum(parts.max(-1), 0)
    scales = (high - low) / 15
    scales[scales == 0] = 1
    zeros = np.clip(np.round(-low / scales), 0, 15)
    values = np.clip(np.round(parts / scales[..., None] + zeros[..., None]), 0, 15)
    return values.astype(np.uint8), scales.astype(np.float32), zeros.astype(np.uint8)


def symmetric_8bit(weights: F32) -> tuple[U8, F32]:
    """Values [N, blocks, 32] and scales [N, blocks]; a weight is (value − 128) · scale."""
    parts = in_blocks(weights)
    scales = np.abs(parts).max(-1) / 127
    scales[scales == 0] = 1
    values = np.clip(np.round(parts / scales[..., None]), -127, 127) + 128
    return values.astype(np.uint8), scales.astype(np.float32)
