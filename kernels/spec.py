"""What a named kernel declares about itself in its `spec.py`, as `SPEC`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hailmesh.hail.errors import UsageError
from hailmesh.kernels.arguments import Check, check_all
from hailmesh.kernels.executor import TensorSpec

Args = Mapping[str, Any]
Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an implementation may be from the reference: |got - truth| <= absolute + relative · |truth|."""

    absolute: float
    relative: float = 0.0

    def excess(self, got: Array, truth: Array) -> float:
        """By how much the worst element is too far off; 0 or less: within."""
        allowed = self.absolute + self.relative * np.abs(truth)
        return float(np.max(np.abs(got.astype(np.float64) - truth) - allowed, initial=-self.absolute))


@dataclass(frozen=True, slots=True)
class Example:
    """A case for the conformance suite and the benchmark."""

    name: str
    args: dict[str, Any]
    inputs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """`summary`: one line for people. `arguments`: the check of each argument; one that isn't in `defaults`
    must be given. `outputs` tells the outputs' exact dtypes and shapes from the checked arguments and the
    inputs' shapes, and raises UsageError when they don't go together. `tolerance` per output dtype name.
    `examples`: cases that cover odd sizes and extreme values."""

    summary: str
    arguments: Mapping[str, Check]
    defaults: Args
    inputs: tuple[TensorSpec, ...]
    outputs: Callable[[Args, tuple[Shape, ...]], tuple[TensorSpec, ...]]
    tolerance: Mapping[str, Tolerance]
    examples: Callable[[], Iterator[Example]]

    def check(self, given: object) -> dict[str, Any]:
        """All arguments, checked and completed. UsageError for unknown, missing or unacceptable ones."""
        args = {**self.defaults, **check_all("arguments", given, self.arguments)}
        for name in self.arguments:
            if name not in args:
                raise UsageError(f"argument {name!r} is missing")
        return args
