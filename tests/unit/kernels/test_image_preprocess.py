"""Pictures come out as Pillow, which most vision models were trained with, would give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hailmesh.hail.cancel import CancelToken
from hailmesh.kernels import registry

Image = pytest.importorskip("PIL.Image", reason="agreement with Pillow is checked where it is installed")

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def photo(height: int, width: int) -> np.ndarray:
    """Soft shapes with a few hard edges and some noise."""
    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(3)
    soft = 110 + 80 * np.sin(x / 17)[..., None] * np.cos(y / 29)[..., None] + np.array([0, 20, -20])
    soft[(x // 40 + y // 50) % 5 == 0] = 250
    soft[(x - y) % 97 < 3] = 5
    return np.clip(soft + rng.normal(0, 6, soft.shape), 0, 255).astype(np.uint8)


def ours(memory: Any, image: np.ndarray, **args: Any) -> np.ndarray:
    (result,) = registry.kernel("image_preprocess").run(
        args, [memory.holding(image)], [None], memory.allocate, [True], CancelToken(), 0
    )
    assert result is not None
    return result.numpy()[0]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("source", [(480, 640), (97, 61), (50, 50), (700, 301)])
@pytest.mark.parametrize("target", [(224, 224), (33, 190)])
def test_stretching_agrees_with_pillow(memory: Any, name: str, source: Any, target: Any) -> None:
    image = photo(*source)
    # In two calls, so that every version goes along the rows first; Pillow 13 sometimes begins with columns.
    narrow = Image.fromarray(image).resize((target[1], source[0]), FILTERS[name])
    theirs = np.asarray(narrow.resize(target[::-1], FILTERS[name])).astype(float)
    got = ours(memory, image, size=list(target), mode="stretch", filter=name)
    # Pillow rounds to whole grey levels after each pass.
    assert np.abs(got.transpose(1, 2, 0) - theirs).max() < 1.6


def test_a_crop_is_taken_before_resizing(memory: Any) -> None:
    image = photo(480, 640)
    theirs = Image.fromarray(image).crop((110, 30, 530, 450)).resize((224, 224), Image.Resampling.BICUBIC)
    got = ours(memory, image, size=[224, 224], crop=0.875)
    assert np.abs(got.transpose(1, 2, 0) - np.asarray(theirs).astype(float)).max() < 1.6


def test_a_letterboxed_picture_lies_centred_on_grey(memory: Any) -> None:
    image = photo(100, 200)
    got = ours(memory, image, size=[64, 64], mode="letterbox", pad=114)
    assert (got[:, :16] == 114).all()
    assert (got[:, 48:] == 114).all()
    theirs = np.asarray(Image.fromarray(image).resize((64, 32), Image.Resampling.BICUBIC)).astype(float)
    assert np.abs(got[:, 16:48].transpose(1, 2, 0) - theirs).max() < 1.6


def test_channels_are_swapped_before_they_are_normalised(memory: Any) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    image[...] = 10, 20, 30
    got = ours(memory, image, size=[2, 2], order="bgr", mean=[1, 2, 3], std=[2, 4, 8])
    np.testing.assert_allclose(got[:, 0, 0], [(30 - 1) / 2, (20 - 2) / 4, (10 - 3) / 8], atol=1e-4)


def test_overshoot_stays_within_black_and_white(memory: Any) -> None:
    image = np.where(np.indices((40, 40)).sum(0) // 5 % 2, 255, 0).astype(np.uint8)[..., None].repeat(3, 2)
    got = ours(memory, image, size=[200, 200], mode="stretch")
    assert got.min() == 0
    assert got.max() == 255
