"""What the HTTP layer needs of a node. It knows nothing else of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hailmesh.hail.buffer import Buffer
from hailmesh.router.qos import Policy
from hailmesh.router.request import Request

if TYPE_CHECKING:
    from hailmesh.hail.arena import Arena


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`max_body` in bytes, also after decompression. Inference needs one of `api_keys` if there are any;
    management always needs `admin_token`."""

    host: str
    port: int
    max_body: int
    admin_token: str
    api_keys: tuple[str, ...] = ()


class Answer(Protocol):
    """A unit's reply. `tensors` lie in the arena and are valid until `close`, which must be called.
    `timings` in milliseconds: queue, sandbox, bridge, kernel, gate, total."""

    unit: str
    version: str
    digest: str
    body: dict[str, Any]
    tensors: dict[str, Buffer]
    timings: dict[str, float]

    def close(self) -> None: ...


class Session(Protocol):
    """A client's stream to one session-lived instance."""

    async def send(self, request: Request) -> Answer:
        """One message of the session. Errors are those of `Node.handle`."""
        ...


class Node(Protocol):
    """Calls are made on the node's own event loop. The API releases a request once the call has ended; a
    node whose worker may read the inputs for longer retains it (see `Request`)."""

    arena: Arena
    """Request bodies are leased from it, owner "request"."""

    @property
    def ready(self) -> bool:
        """Whether every unit that should serve does."""
        ...

    async def handle(self, request: Request) -> Answer:
        """Admits, queues, runs. Any MeshError; Cancelled soon after the request's token is cancelled."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[bytes | Answer, None]:
        """Chunks (JSON, as the unit emitted them), then exactly one Answer. Errors as for `handle`, also
        between chunks. Closing the iterator cancels the request."""
        ...

    def session(self, unit: str) -> AbstractAsyncContextManager[Session]:
        """An instance that lives until the context ends. UsageError if the unit isn't session-lived."""
        ...

    def route(self, name: str) -> str:
        """The unit that serves a modality, alias or unit name; NotFound lists what there is."""
        ...

    def policy(self, unit: str) -> Policy:
        """The terms a unit offers. NotFound."""
        ...

    def unit(self, name: str) -> dict[str, Any]:
        """One element of `units`, by the unit's name. NotFound lists what there is."""
        ...

    def units(self) -> list[dict[str, Any]]:
        """For each unit: name, version, digest, modality, state, reason (of a failure, else ""), slots,
        session_lived, since (Unix seconds), restarts (of its worker), and graphs, a dict by name of
        {"kind": "graph", "inputs": [{"name", "dtype": DType number, "shape": [-1, 3, …]}], "outputs": […]} or
        {"kind": "sequence", "context": n, "vocabulary": n}."""
        ...

    async def plug(self, ref: str) -> dict[str, Any]:
        """Loads a unit from the store, returns once it is active, as in `units`. NotFound, ImageError, …"""
        ...

    async def unplug(self, name: str, drain: float) -> None:
        """Lets running requests finish for at most `drain` seconds, then removes the unit. NotFound."""
        ...

    def describe(self) -> dict[str, Any]:
        """The node: version, uptime, device, lanes, arena report, memory ledger."""
        ...

    def events(self) -> AsyncIterator[dict[str, Any]]:
        """State changes of units and workers, from now on: {"event", "time", …}."""
        ...

    def logs(self, unit: str) -> list[dict[str, Any]]:
        """The last lines a unit logged: {"time", "level", "request", "line"}. NotFound."""
        ...
