"""A unit's answer, on its way out of the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import UnitFault
from hailmesh.mesh.workers import Reply


@dataclass(slots=True)
class Answer:
    """`tensors` lie in the arena and are valid until `close`, which must be called, once or more often.
    `timings` in milliseconds: queue, sandbox, bridge, kernel, gate, total."""

    unit: str
    version: str
    digest: str
    body: dict[str, Any]
    tensors: dict[str, Buffer] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    _release: Callable[[], None] | None = None

    def close(self) -> None:
        release, self._release = self._release, None
        self.tensors.clear()
        if release is not None:
            release()


def parse_body(unit: str, raw: bytes) -> dict[str, Any]:
    """The reply's JSON object; UnitFault if the unit replied anything else."""
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise UnitFault(f"unit {unit} replied something that is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise UnitFault(f"unit {unit} replied a JSON {type(body).__name__}, expected an object")
    return body


def tensors_of(arena: Arena, reply: Reply) -> dict[str, Buffer]:
    """The reply's tensors, as views of the arena."""
    return {
        tensor["name"]: arena.view(
            tensor["offset"], tensor["size"], DType(tensor["dtype"]), tuple(tensor["shape"])
        )
        for tensor in reply.tensors
    }
