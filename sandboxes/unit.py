"""A unit version as a worker holds it once it is loaded: what all its instances share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.kernels.executor import Allocate, Executor, TensorSpec
from hailmesh.sandboxes.protocol import Limits


class Tokenizer(Protocol):
    """See kernels.tokenizer."""

    def encode(self, text: str) -> Sequence[int]: ...

    def token(self, name: str) -> int | None: ...

    def decode_bytes(self, ids: Sequence[int]) -> bytes: ...


class Sequenced(Protocol):
    """One sequence of a SequenceEngine. Used by one thread at a time."""

    def bind(self, name: str, buffer: Buffer) -> None: ...

    def feed(self, ids: npt.NDArray[np.int64], token: CancelToken) -> None: ...

    @property
    def logits(self) -> npt.NDArray[np.float32]: ...

    def close(self) -> None: ...


class Sequences(Protocol):
    """See kernels.sequence.SequenceEngine."""

    context: int
    vocabulary: int
    bound: tuple[TensorSpec, ...]

    def open(self, max_tokens: int, token: CancelToken, level: int) -> Sequenced: ...


class NamedKernel(Protocol):
    """See kernels.registry.Kernel."""

    def run(
        self,
        args: dict[str, Any],
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]: ...


class Graph:
    """A graph of the unit's image: either an `executor`, or `sequences` with their `tokenizer`."""

    def __init__(
        self,
        name: str,
        *,
        executor: Executor | None = None,
        sequences: Sequences | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.name = name
        self.executor = executor
        self.sequences = sequences
        self.tokenizer = tokenizer
        self.info = orjson.dumps(self.describe())

    def describe(self) -> dict[str, Any]:
        """What graph_info tells, see mesh_v1.h."""
        if self.sequences is not None:
            return {
                "kind": "sequence",
                "context": self.sequences.context,
                "vocabulary": self.sequences.vocabulary,
                "bound": [spec.name for spec in self.sequences.bound],
            }
        assert self.executor is not None, "a graph has an executor or sequences"
        return {
            "kind": "graph",
            "inputs": [_describe(spec) for spec in self.executor.inputs],
            "outputs": [_describe(spec) for spec in self.executor.outputs],
        }


def _describe(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": int(spec.dtype), "shape": list(spec.shape)}


@dataclass(frozen=True, slots=True)
class Unit:
    """`config` is JSON, as the guest reads it; `kernels` are those its image was granted."""

    name: str
    arena: Arena
    config: bytes = b"{}"
    graphs: dict[str, Graph] = field(default_factory=dict)
    kernels: dict[str, NamedKernel] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
