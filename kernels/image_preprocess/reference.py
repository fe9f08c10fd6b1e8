"""The truth: each output pixel as a weighted sum, written out in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hailmesh.kernels.image_preprocess.spec import geometry
from hailmesh.kernels.spec import Args, Array


def _bicubic(x: float) -> float:
    """Keys' cubic convolution with a = -0.5, as Pillow's BICUBIC."""
    a, x = -0.5, abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _bilinear(x: float) -> float:
    return max(0.0, 1 - abs(x))


_FILTERS = {"bicubic": (_bicubic, 2.0), "bilinear": (_bilinear, 1.0)}


def weights(source: int, target: int, filter_name: str) -> Array:
    """float64 [target, source]: how much each source pixel counts in each target pixel. Pillow's
    precompute_coeffs (libImaging/Resample.c): the filter, widened by the scale when it shrinks, around the
    target pixel's centre, cut at the picture's edges, summing to 1."""
    function, support = _FILTERS[filter_name]
    scale = source / target
    stretch = max(scale, 1.0)
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        first = max(0, int(centre - support * stretch + 0.5))
        last = min(source, int(centre + support * stretch + 0.5))
        taps = [function((column + 0.5 - centre) / stretch) for column in range(first, last)]
        matrix[row, first:last] = np.array(taps) / sum(taps)
    return matrix


def compute(args: Args, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """See spec.py."""
    (image,) = inputs
    cut, placed = geometry(args, image.shape[0], image.shape[1])
    pixels = image[cut.top : cut.top + cut.height, cut.left : cut.left + cut.width].astype(np.float64)
    across = weights(cut.width, placed.width, args["filter"])
    pixels = np.clip(np.einsum("xw,hwc->hxc", across, pixels, optimize=True), 0, 255)
    down = weights(cut.height, placed.height, args["filter"])
    pixels = np.clip(np.einsum("yh,hxc->yxc", down, pixels, optimize=True), 0, 255)
    canvas = np.full((*args["size"], 3), args["pad"])
    rows, columns = (
        slice(placed.top, placed.top + placed.height),
        slice(placed.left, placed.left + placed.width),
    )
    canvas[rows, columns] = pixels
    if args["order"] == "bgr":
        canvas = canvas[..., ::-1]
    normalised = (canvas - np.array(args["mean"])) / np.array(args["std"])
    return (normalised.transpose(2, 0, 1)[None],)
