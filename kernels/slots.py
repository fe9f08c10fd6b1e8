"""The places of an engine's sequences: who sits where, and who waits for a place."""

from __future__ import annotations

import threading
from bisect import insort
from itertools import count

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, Overloaded
from hailmesh.kernels.seat import Seat


class Slots:
    """`lock` is the engine's. `take` takes it itself; all else is for whoever holds it."""

    def __init__(self, size: int, lock: threading.Lock) -> None:
        self.size = size
        self.seated: dict[int, Seat] = {}
        self._lock = lock
        self._changed = threading.Condition(lock)
        self._free = list(range(size))
        self._waiting: list[tuple[int, int]] = []
        self._arrivals = count()
        self._closed = False

    def take(self, token: CancelToken, level: int) -> int:
        """The lowest free slot, so that those in use stay close together. Waits for one, the highest level
        first; Overloaded once the token's deadline has passed, Cancelled when it or the engine ends."""
        forget = token.on_cancel(self._wake)
        turn = (-level, next(self._arrivals))
        try:
            with self._lock:
                insort(self._waiting, turn)
                try:
                    while not (self._free and self._waiting[0] == turn):
                        self._wait(token)
                    if self._closed:
                        raise Cancelled("the engine was closed")
                    return self._free.pop(0)
                finally:
                    self._waiting.remove(turn)
                    self._changed.notify_all()
        finally:
            forget()

    @property
    def queued(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    def give(self, slot: int) -> None:
        """The slot is free again."""
        insort(self._free, slot)
        self._changed.notify_all()

    def move(self, seat: Seat, target: int) -> None:
        """Gives a sequence another slot, which must be free."""
        self._free.remove(target)
        del self.seated[seat.slot]
        self.give(seat.slot)
        seat.slot = target
        seat.binding = None
        self.seated[target] = seat

    def free_between(self, low: int, high: int) -> list[int]:
        """The free slots above `low` and below `high`, lowest first."""
        return [slot for slot in self._free if low < slot < high]

    def close(self) -> None:
        """Whoever waits, or comes later, is refused."""
        self._closed = True
        self._changed.notify_all()

    def _wait(self, token: CancelToken) -> None:
        if self._closed:
            raise Cancelled("the engine was closed")
        if token.cancelled:
            raise Cancelled("the request was cancelled while it waited for a place")
        remaining = token.remaining()
        if remaining <= 0:
            raise Overloaded(f"all {self.size} places for sequences stayed in use until the deadline")
        self._changed.wait(min(remaining, threading.TIMEOUT_MAX))

    def _wake(self) -> None:
        with self._lock:
            self._changed.notify_all()
