"""The thin runner around the arbiter: waiting for a slot, on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hailmesh.hail.errors import Cancelled, MeshError, Overloaded
from hailmesh.router.arbiter import Arbiter
from hailmesh.router.request import Request


class Slots:
    """Grants slots in the arbiter's order. Calls are made on one event loop."""

    def __init__(self, arbiter: Arbiter) -> None:
        self.arbiter = arbiter
        self._granted: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def slot(self, request: Request) -> AsyncIterator[float]:
        """Holds one of the unit's slots for the length of the block; yields the seconds it waited for it.
        Overloaded, DeadlineExceeded or Cancelled if it gets none."""
        waited = await self._acquire(request)
        learn = False
        try:
            yield waited
            learn = True
        finally:
            self.arbiter.finish(request, time.monotonic_ns(), learn=learn)
            self._advance()

    def add(self, unit: str, version: str, slots: int) -> None:
        self.arbiter.add(unit, version, slots)
        self._advance()

    def remove(self, unit: str) -> None:
        """Those that wait for the unit are told to come back."""
        gone = f"unit {unit} was unplugged while the request waited for it"
        for request in self.arbiter.remove(unit):
            self._refuse(request, Overloaded(gone))

    async def _acquire(self, request: Request) -> float:
        loop = asyncio.get_running_loop()
        asked = time.monotonic_ns()
        displaced = self.arbiter.submit(request, asked)
        future = self._granted[request.id] = loop.create_future()
        if displaced is not None:
            self._refuse(displaced, Overloaded("more urgent requests took its place in the queue: try again"))
        forget = request.token.on_cancel(lambda: loop.call_soon_threadsafe(self._cancel, request))
        try:
            self._advance()
            await future
        except asyncio.CancelledError:
            if self._take_out(request):
                self._advance()
            raise
        finally:
            forget()
            self._granted.pop(request.id, None)
        return (time.monotonic_ns() - asked) / 1e9

    def _take_out(self, request: Request) -> bool:
        """Out of the queue, or out of the slot that it was granted but never learnt of (then True)."""
        if self.arbiter.cancel(request.id) is not None:
            return False
        future = self._granted[request.id]
        if future.cancelled() or future.exception() is not None:
            return False
        self.arbiter.finish(request, time.monotonic_ns(), learn=False)
        return True

    def _cancel(self, request: Request) -> None:
        if self.arbiter.cancel(request.id) is not None:
            self._refuse(request, Cancelled("the client went away while the request waited"))

    def _refuse(self, request: Request, error: MeshError) -> None:
        future = self._granted.get(request.id)
        if future is not None and not future.done():
            future.set_exception(error)

    def _advance(self) -> None:
        """Lets the arbiter decide, and looks again when the next of those that wait would be too late."""
        now = time.monotonic_ns()
        for request, error in self.arbiter.expire(now):
            self._refuse(request, error)
        for request in self.arbiter.grant(now):
            future = self._granted[request.id]
            if not future.done():
                future.set_result(None)
            else:
                self.arbiter.finish(request, now, learn=False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.arbiter.next_expiry()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, (due - now) / 1e9) + 0.001, self._advance)
