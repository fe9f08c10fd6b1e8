"""Named kernels are found by their folders, and their arguments checked as declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import DeadlineExceeded, NotFound, TooLarge, UsageError
from hailmesh.kernels import registry
from hailmesh.kernels.arguments import choice, integer, number, optional, several


def test_the_reference_kernels_are_found() -> None:
    assert {"image_preprocess", "logmel"} <= set(registry.names())


@pytest.mark.parametrize("name", ["nope", "", "registry", "../logmel", "logmel.spec"])
def test_a_name_without_a_kernel_is_not_found(name: str) -> None:
    with pytest.raises(NotFound, match="image_preprocess"):
        registry.kernel(name)


def test_a_run_waits_at_its_lane_s_gate(memory: Any, lane: Any, gates: Any) -> None:
    kernel = registry.kernel("logmel", lane)
    samples = memory.holding(np.zeros(480, np.float32))
    gates(1).enter(5, CancelToken())
    with pytest.raises(DeadlineExceeded):
        kernel.run({}, [samples], [None], memory.allocate, [True], CancelToken(1), 3)
    kernel.run({}, [samples], [None], memory.allocate, [True], CancelToken(), 6)


def test_an_unwanted_output_is_not_computed(memory: Any) -> None:
    samples = memory.holding(np.zeros(480, np.float32))
    leased = len(memory.leases)
    assert registry.kernel("logmel").run(
        {}, [samples], [None], memory.allocate, [False], CancelToken(), 0
    ) == [None]
    assert len(memory.leases) == leased


def test_an_output_of_another_shape_or_dtype_is_refused_by_name(memory: Any) -> None:
    samples = memory.holding(np.zeros(480, np.float32))
    for dtype, shape in ((DType.F32, (1, 80, 4)), (DType.F16, (1, 80, 3))):
        given = memory.allocate(dtype, shape)
        with pytest.raises(UsageError, match=r"output 'mel': expected f32 \[1, 80, 3\]"):
            registry.kernel("logmel").run({}, [samples], [given], memory.allocate, [True], CancelToken(), 0)


def run(memory: Any, name: str, args: Any, array: np.ndarray) -> np.ndarray:
    (result,) = registry.kernel(name).run(
        args, [memory.holding(array)], [None], memory.allocate, [True], CancelToken(), 0
    )
    assert result is not None
    return result.numpy()


def test_a_missing_argument_is_named(memory: Any) -> None:
    with pytest.raises(UsageError, match="'size' is missing"):
        run(memory, "image_preprocess", {}, np.zeros((4, 4, 3), np.uint8))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"size": [224]}, "size is a list of 2"),
        ({"size": [224, 0]}, r"size\[1\] is a whole number from 1"),
        ({"size": [224, 99999]}, r"size\[1\]"),
        ({"size": [2, 2], "mode": "zoom"}, "mode is one of crop, letterbox, stretch, not 'zoom'"),
        ({"size": [2, 2], "std": [1, 0, 1]}, r"std\[1\]"),
        ({"size": [2, 2], "crop": 0}, "crop"),
        ({"size": [2, 2], "crop": float("nan")}, "crop"),
        ([], "arguments are a JSON object"),
    ],
)
def test_an_argument_that_is_not_acceptable_is_named(memory: Any, args: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(memory, "image_preprocess", args, np.zeros((4, 4, 3), np.uint8))


def test_a_picture_without_pixels_is_refused(memory: Any) -> None:
    with pytest.raises(UsageError, match="at least one pixel"):
        run(memory, "image_preprocess", {"size": [2, 2]}, np.zeros((0, 4, 3), np.uint8))


def test_a_recording_longer_than_its_context_is_too_large_and_one_too_short_is_refused(memory: Any) -> None:
    with pytest.raises(TooLarge, match="at most 480 samples, got 481"):
        run(memory, "logmel", {"context_samples": 480}, np.zeros(481, np.float32))
    with pytest.raises(UsageError, match="over 200 samples"):
        run(memory, "logmel", {}, np.zeros(200, np.float32))


def test_samples_that_are_no_numbers_harm_nobody(memory: Any) -> None:
    samples = np.zeros(800, np.float32)
    samples[400:] = np.nan, *[np.inf] * 399
    run(memory, "logmel", {}, samples)
    assert np.isfinite(run(memory, "logmel", {}, np.zeros(800, np.float32))).all()


def test_checks_return_what_the_code_wants() -> None:
    assert number(0, 1)("x", 1) == 1.0
    assert integer(0, 5)("x", 5) == 5
    assert choice("a", "b")("x", "b") == "b"
    assert several(integer(0, 9), least=1, most=3)("x", [1, 2]) == (1, 2)
    assert optional(integer(0, 9))("x", None) is None


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (number(0, 1), True),
        (number(0, 1), "1"),
        (number(0, 1), float("inf")),
        (integer(0, 5), 1.0),
        (integer(0, 5), False),
        (choice("a"), ["a"]),
        (several(integer(0, 9), least=1, most=3), []),
        (several(integer(0, 9), least=1, most=3), [1, 2, 3, 4]),
        (several(integer(0, 9), least=1, most=3), (1, 2)),
    ],
)
def test_checks_refuse_by_name_and_in_one_short_line(check: Any, value: Any) -> None:
    with pytest.raises(UsageError, match=r"^width ") as caught:
        check("width", value)
    assert len(str(caught.value)) < 150
