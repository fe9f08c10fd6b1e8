"""On one CPU thread: float32 transforms of some frames at a time, which stay in the cache meanwhile.

Measured on 10 s of audio: 4.7 ms so, 12.7 all frames at once; transforms as matrix products 7 to 12 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from hailmesh.kernels.logmel.spec import BANDS, HOP, RATE, WINDOW, padded_samples
from hailmesh.kernels.spec import Args, Array

Floats = npt.NDArray[np.float32]

_FRAMES = 100
_BINS = WINDOW // 2 + 1


def compute(args: Args, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> None:
    """See spec.py."""
    (samples,), (output,) = inputs, outputs
    if output is None:
        return
    log = _band_energies(_reflected(samples, padded_samples(args, len(samples))))
    np.maximum(log, np.float32(1e-10), out=log)
    np.log(log, out=log)
    # log10(x) / 4 is log(x) / (4 log 10): the cut 8 below the maximum is 2 here.
    log *= np.float32(1 / (4 * math.log(10)))
    np.maximum(log, log.max() - np.float32(2), out=log)
    log += np.float32(1)
    output[0] = log


def _reflected(samples: Array, total: int) -> Floats:
    """The samples padded with silence to `total`, and reflected by half a window at both ends."""
    edge = WINDOW // 2
    padded = np.zeros(total + 2 * edge, np.float32)
    padded[edge : edge + len(samples)] = samples
    padded[:edge] = padded[2 * edge : edge : -1]
    padded[total + edge :] = padded[total + edge - 2 : total - 2 : -1]
    return padded


def _band_energies(padded: Floats) -> Floats:
    """float32 [bands, frames]."""
    count = (len(padded) - WINDOW) // HOP
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:count]
    hann, bands = _constants()
    framed = np.empty((_FRAMES, WINDOW), np.float32)
    power = np.empty((_FRAMES, _BINS), np.float32)
    imaginary = np.empty((_FRAMES, _BINS), np.float32)
    energies = np.empty((BANDS, count), np.float32)
    for start in range(0, count, _FRAMES):
        some = min(_FRAMES, count - start)
        spectrum = np.fft.rfft(np.multiply(windows[start : start + some], hann, out=framed[:some]), axis=1)
        np.square(spectrum.real, out=power[:some])
        np.square(spectrum.imag, out=imaginary[:some])
        power[:some] += imaginary[:some]
        np.matmul(bands, power[:some].T, out=energies[:, start : start + some])
    return energies


@cache
def _constants() -> tuple[Floats, Floats]:
    """The Hann window, and the bands' triangles [bands, bins]. Formulas: see reference.py."""
    top = 15 + 27 * math.log(RATE / 2 / 1000) / math.log(6.4)
    mels = np.linspace(0, top, BANDS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * (math.log(6.4) / 27)))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    frequencies = np.arange(_BINS) * (RATE / WINDOW)
    slopes = np.minimum((frequencies - low) / (centre - low), (high - frequencies) / (high - centre))
    triangles = np.maximum(slopes, 0) * 2 / (high - low)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    return hann.astype(np.float32), triangles.astype(np.float32)
