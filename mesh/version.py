"""One version of a unit: its state, its worker, and who is inside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from hailmesh.hail.arena import Lease
from hailmesh.hail.errors import UnitFault
from hailmesh.mesh.workers import Worker
from hailmesh.oci.image import UnitImage
from hailmesh.router.qos import Policy


class State(Enum):
    """In the order of a version's life; `failed` may come at any point."""

    PULLED = "pulled"
    VERIFIED = "verified"
    COMPILED = "compiled"
    LOADED = "loaded"
    ACTIVE = "active"
    DRAINING = "draining"
    RETIRED = "retired"
    FAILED = "failed"


class UnitVersion:
    """`on_change` is called at each change of state. `span`: the worker's part of the arena; `row`: its row
    of the gate page; `restarting`: brings its worker back; `pause`: seconds before it may
    do so, `came_up`: when it last did, on the monotonic clock."""

    def __init__(self, image: UnitImage, on_change: Callable[[UnitVersion], None]) -> None:
        self.image = image
        self.state = State.PULLED
        self.reason = ""
        self.since = time.time()
        self.restarts = 0
        self.stopping = False
        self.restarting: asyncio.Task[None] | None = None
        self.pause = 0.0
        self.came_up = time.monotonic()
        self.span: Lease | None = None
        self.give_row_back: Callable[[], None] = lambda: None
        self._worker: Worker | None = None
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._on_change = on_change

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def version(self) -> str:
        return self.image.version

    @property
    def digest(self) -> str:
        return self.image.digest

    @property
    def modality(self) -> str:
        return self.image.modality

    @property
    def slots(self) -> int:
        return self.image.slots

    @property
    def session_lived(self) -> bool:
        return self.image.session_lived

    @property
    def policy(self) -> Policy:
        deadline_ms = self.image.qos.deadline_ms
        return Policy(
            default=self.image.qos.qos_class,
            deadline=None if deadline_ms is None else deadline_ms / 1e3,
            penalty=self.image.qos.penalty,
        )

    @property
    def worker(self) -> Worker:
        """UnitFault while there is none."""
        if self._worker is None:
            raise UnitFault(f"unit {self.name} has no worker now; try again in a moment")
        return self._worker

    @worker.setter
    def worker(self, worker: Worker | None) -> None:
        self._worker = worker

    def move(self, state: State) -> None:
        self.state = state
        self.since = time.time()
        self._on_change(self)

    def fail(self, reason: str) -> None:
        self.reason = reason
        self.move(State.FAILED)

    def borrow(self) -> None:
        """Somebody is inside: the version isn't drained until all have given it back."""
        self._inside += 1
        self._empty.clear()

    def give_back(self) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._empty.set()

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        self.borrow()
        try:
            yield
        finally:
            self.give_back()

    async def drained(self, timeout: float) -> bool:
        """Waits until nobody is inside, at most `timeout` seconds; whether that is so."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Ends the worker and returns its memory to the arena. Safe to call twice."""
        self.stopping = True
        if self.restarting is not None:
            # Or else its worker would come up later, in memory that is somebody else's by then.
            self.restarting.cancel()
            await asyncio.wait([self.restarting])
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None
        self.give_row_back()
        self.give_row_back = lambda: None
        if self.span is not None:
            self.span.release()
            self.span = None

    def describe(self) -> dict[str, Any]:
        """As `GET /v1/units` shows it."""
        details = self._worker.details if self._worker is not None else {}
        return {
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "modality": self.modality,
            "state": self.state.value,
            "reason": self.reason,
            "slots": self.slots,
            "inside": self._inside,
            "session_lived": self.session_lived,
            "since": self.since,
            "restarts": self.restarts,
            "pid": self._worker.pid if self._worker is not None and self._worker.alive else None,
            "qos": {"class": self.image.qos.qos_class, "deadline_ms": self.image.qos.deadline_ms},
            "graphs": details.get("graphs", {}),
        }
