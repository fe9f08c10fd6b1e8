"""image_preprocess: u8 [height, width, 3] RGB → f32 or f16 [1, 3, H, W].

    size     [H, W] of the output, in pixels
    mode     crop: the largest centred part of the output's aspect ratio, times `crop`, fills the output
             letterbox: the whole picture, scaled by min(H/height, W/width), centred on `pad`
             stretch: the whole picture fills the output
    crop     in (0, 1]; with mode crop only
    pad      grey level 0 to 255 around a letterboxed picture
    filter   bicubic (a = -0.5) or bilinear, widened when it shrinks so that it antialiases: Pillow's resize
    mean, std  per output channel, in grey levels 0 to 255: (x - mean) / std
    order    rgb or bgr: the output's channels
    dtype    f32 or f16

Resampled values are clipped to 0 … 255 after each pass, first along rows, then along columns (as Pillow
before 13, which nearly all published models saw; later ones turn the order round for some pictures).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import UsageError
from hailmesh.kernels.arguments import choice, integer, number, several
from hailmesh.kernels.executor import TensorSpec
from hailmesh.kernels.spec import Args, Example, KernelSpec, Shape, Tolerance

_SIZE = 8192


class Box(NamedTuple):
    """A part of a picture, in pixels."""

    top: int
    left: int
    height: int
    width: int


def geometry(args: Args, height: int, width: int) -> tuple[Box, Box]:
    """(what of the picture is read, what of the output it fills)."""
    rows, columns = args["size"]
    whole = Box(0, 0, rows, columns)
    if args["mode"] == "stretch":
        return Box(0, 0, height, width), whole
    if args["mode"] == "crop":
        cut_height = max(1, int(min(height, width * rows / columns) * args["crop"]))
        cut_width = max(1, int(min(width, height * columns / rows) * args["crop"]))
        return Box((height - cut_height) // 2, (width - cut_width) // 2, cut_height, cut_width), whole
    scale = min(rows / height, columns / width)
    fit_height = min(rows, max(1, round(height * scale)))
    fit_width = min(columns, max(1, round(width * scale)))
    placed = Box((rows - fit_height) // 2, (columns - fit_width) // 2, fit_height, fit_width)
    return Box(0, 0, height, width), placed


def _outputs(args: Args, shapes: tuple[Shape, ...]) -> tuple[TensorSpec, ...]:
    if 0 in shapes[0]:
        raise UsageError(f"a picture has at least one pixel, this one is {shapes[0][0]} by {shapes[0][1]}")
    dtype = DType.F16 if args["dtype"] == "f16" else DType.F32
    return (TensorSpec("tensor", dtype, (1, 3, *args["size"])),)


def _examples() -> Iterator[Example]:
    rng = np.random.default_rng(7)

    def noise(height: int, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)

    imagenet = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
    unit = {"mean": [0, 0, 0], "std": [255, 255, 255]}
    yield Example("camera", {"size": [224, 224], "crop": 0.875, **imagenet}, (noise(480, 640),))
    yield Example("portrait", {"size": [224, 224], "filter": "bilinear", **unit}, (noise(641, 479),))
    yield Example("aspect", {"size": [48, 320], "crop": 1, **unit}, (noise(333, 501),))
    yield Example("letterbox", {"size": [416, 416], "mode": "letterbox", "order": "bgr"}, (noise(271, 640),))
    yield Example("letterbox-up", {"size": [97, 64], "mode": "letterbox", "pad": 0}, (noise(13, 31),))
    yield Example("stretch", {"size": [300, 300], "mode": "stretch", **unit}, (noise(123, 457),))
    yield Example("half", {"size": [224, 224], "dtype": "f16", **imagenet}, (noise(500, 375),))
    yield Example("one-pixel", {"size": [33, 7], "mode": "stretch", **unit}, (noise(1, 1),))
    yield Example("to-one-pixel", {"size": [1, 1], "crop": 1, **unit}, (noise(200, 301),))
    yield Example("thin", {"size": [64, 64], "mode": "letterbox", **unit}, (noise(1, 900),))
    yield Example("same-size", {"size": [60, 80], "mode": "stretch"}, (noise(60, 80),))
    yield Example("large", {"size": [224, 224], **imagenet}, (noise(1500, 2001),))
    edges = np.where(np.indices((90, 90)).sum(0) // 7 % 2, 255, 0).astype(np.uint8)[..., None].repeat(3, 2)
    yield Example("hard-edges", {"size": [224, 224], "mode": "stretch", **unit}, (edges,))
    yield Example("white", {"size": [50, 50], **imagenet}, (np.full((70, 70, 3), 255, np.uint8),))


SPEC = KernelSpec(
    summary="a picture as a model's input tensor: crop or pad, antialiased resize, normalise",
    arguments={
        "size": several(integer(1, _SIZE), least=2, most=2),
        "mode": choice("crop", "letterbox", "stretch"),
        "crop": number(1e-3, 1),
        "pad": number(0, 255),
        "filter": choice("bicubic", "bilinear"),
        "mean": several(number(-1e4, 1e4), least=3, most=3),
        "std": several(number(1e-4, 1e4), least=3, most=3),
        "order": choice("rgb", "bgr"),
        "dtype": choice("f32", "f16"),
    },
    defaults={
        "mode": "crop",
        "crop": 0.875,
        "pad": 114.0,
        "filter": "bicubic",
        "mean": (0.0, 0.0, 0.0),
        "std": (1.0, 1.0, 1.0),
        "order": "rgb",
        "dtype": "f32",
    },
    inputs=(TensorSpec("image", DType.U8, (-1, -1, 3)),),
    outputs=_outputs,
    # Of float32 sums over at most a few hundred taps of grey levels; of half's 11 bits.
    tolerance={"F32": Tolerance(5e-4, 1e-5), "F16": Tolerance(2e-3, 1e-3)},
    examples=_examples,
)
