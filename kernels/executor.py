"""The seam to what computes: a graph executor takes arena buffers and fills arena buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named input or output; a dimension of -1 is free."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    def admits(self, buffer: Buffer) -> bool:
        """Whether `buffer` has this dtype and a shape that fits."""
        return (
            buffer.dtype == self.dtype
            and len(buffer.shape) == len(self.shape)
            and all(want in (-1, got) for want, got in zip(self.shape, buffer.shape, strict=True))
        )


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
    ) -> list[Buffer | None]:
        """Computes the wanted outputs, in the graph's order, into the given buffers, or into freshly
        allocated ones where `outputs` holds None. UsageError names the tensor that doesn't fit."""

    def close(self) -> None: ...
