"""What the node and a worker say to each other: frames over a stream socket.

A frame is two little-endian u32 (header length, payload length), the header as JSON, the payload as bytes.

node → worker                       payload
  {"op":"load", …LoadSpec}
  {"op":"run", …Job}                a session's first run makes its instance, the others go to the same
  {"op":"close", "session":S}       ends a session's instance
  {"op":"part", "id":R, "part":I, "size":N, "ended":B}     a streamed part has grown to N bytes
  {"op":"ack", "id":R, "bytes":N}                          the client has read N bytes of chunks
  {"op":"cancel", "id":R}
  {"op":"release", "id":R}                                 reply tensors were read
  {"op":"stop"}

worker → node
  {"ev":"state", "state":"loaded", …}                      pool states, with details once loaded
  {"ev":"chunk", "id":R}                                   a chunk
  {"ev":"reply", "id":R, "tensors":[…], "stages":{…}}      the reply's JSON
  {"ev":"error", "id":R, "code":C, "message":M, "stages":{…}}
  {"ev":"log", "id":R, "level":L}                          a line of the unit's log
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

PREFIX = struct.Struct("<II")
MAX_HEADER = 4 << 20
MAX_PAYLOAD = 64 << 20


def pack(header: dict[str, Any], payload: bytes | bytearray | memoryview = b"") -> bytes:
    """One frame, ready to be written."""
    head = orjson.dumps(header)
    return b"".join((PREFIX.pack(len(head), len(payload)), head, payload))


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """A graph of the image. kind: `graph`, or `sequence` (then with a tokenizer and KV limits)."""

    fd: int
    kind: str = "graph"
    tokenizer_fd: int = -1
    context: int = 0
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use at most."""

    memory: int = 256 << 20
    host_calls: int = 1_000_000
    log_bytes: int = 64 << 10
    reply_bytes: int = 16 << 20
    tensors: int = 256


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """All that a worker needs to serve a unit version. Descriptors are inherited, the blobs behind them
    verified. `memory`: bytes that loading and running its graphs may take, besides its guests and the arena;
    0: no limit."""

    unit: str
    version: str
    digest: str
    module_fd: int
    module_digest: str
    arena_fd: int
    arena_offset: int
    arena_size: int
    gate_row: int
    config: dict[str, Any] = field(default_factory=dict)
    graphs: dict[str, GraphSpec] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    limits: Limits = Limits()
    slots: int = 2
    lane: str = "best-effort"
    cores: tuple[int, ...] = ()
    wide: bool = True
    threads: int = 1
    spin: bool = False
    session_lived: bool = False
    memory: int = 0

    def wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, wire: dict[str, Any]) -> LoadSpec:
        known = {name: wire[name] for name in cls.__dataclass_fields__ if name in wire}
        known["graphs"] = {name: GraphSpec(**spec) for name, spec in wire.get("graphs", {}).items()}
        known["limits"] = Limits(**wire.get("limits", {}))
        known["kernels"] = tuple(wire.get("kernels", ()))
        known["cores"] = tuple(wire.get("cores", ()))
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Part:
    """One input of a request: `size` bytes at `offset` of the arena's memfd, with room for `room` bytes.
    dtype and shape are set for tensors."""

    name: str
    type: str
    offset: int
    size: int
    room: int
    streamed: bool = False
    dtype: int | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One request for a worker. `level`: the arbiter's, higher is more urgent. `seed` feeds random_get."""

    id: str
    parts: tuple[Part, ...]
    deadline_ns: int
    level: int = 0
    seed: int = 0
    session: str = ""

    def wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, wire: dict[str, Any]) -> Job:
        parts = tuple(
            Part(**{**part, "shape": None if part.get("shape") is None else tuple(part["shape"])})
            for part in wire["parts"]
        )
        return cls(
            wire["id"],
            parts,
            wire["deadline_ns"],
            wire.get("level", 0),
            wire.get("seed", 0),
            wire.get("session", ""),
        )


@dataclass(slots=True)
class Stages:
    """Where the time of one request went inside the worker, in microseconds: opening the instance and
    running guest code (`sandbox`), host calls without what follows (`bridge`), device time (`kernel`),
    waiting for a device (`gate`), and waiting for the client to send more or to read (`client`)."""

    sandbox: float = 0.0
    bridge: float = 0.0
    kernel: float = 0.0
    gate: float = 0.0
    client: float = 0.0

    @property
    def outside(self) -> float:
        """What of a host call's time isn't the bridge's."""
        return self.kernel + self.gate + self.client

    def wire(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in asdict(self).items()}
