"""The seam to what computes: a graph executor takes arena buffers and fills arena buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import UsageError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named input or output; a dimension of -1 is free."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name.lower()} {_dimensions(self.shape)}"

    def admits(self, buffer: Buffer) -> bool:
        """Whether `buffer` has this dtype and a shape that fits."""
        return (
            buffer.dtype == self.dtype
            and len(buffer.shape) == len(self.shape)
            and all(want in (-1, got) for want, got in zip(self.shape, buffer.shape, strict=True))
        )


def _dimensions(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join("any" if size == -1 else str(size) for size in shape) + "]"


def describe(buffer: Buffer) -> str:
    """A buffer's dtype and shape, written as a TensorSpec's."""
    return f"{buffer.dtype.name.lower()} {_dimensions(buffer.shape)}"


def check_tensors(kind: str, specs: Sequence[TensorSpec], buffers: Sequence[Buffer | None]) -> None:
    """UsageError unless there are as many buffers as specs and each that is not None fits its own. `kind` is
    `input` or `output`."""
    if len(buffers) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"expected {len(specs)} {kind}s ({names}), got {len(buffers)}")
    for spec, buffer in zip(specs, buffers, strict=True):
        if buffer is not None and not spec.admits(buffer):
            raise UsageError(f"{kind} {spec.name!r}: expected {spec}, got {describe(buffer)}")


Allocate = Callable[[DType, tuple[int, ...]], Buffer]
"""Leases an output buffer once its shape is known."""


class Executor(Protocol):
    """One loaded graph. `run` may be called from several threads at once."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]:
        """Computes the wanted outputs, in the graph's order, into the given buffers, or into freshly
        allocated ones where `outputs` holds None; None stands for what wasn't wanted. `level`: the
        arbiter's, for the lane's gate. UsageError names the tensor that doesn't fit; Cancelled and
        DeadlineExceeded as the token says, also in mid-run. After an error the content of the output
        buffers is undefined, and what `allocate` gave stays the caller's to release."""

    def close(self) -> None:
        """Frees the graph once the runs in progress have ended; `run` must not be called any more."""
