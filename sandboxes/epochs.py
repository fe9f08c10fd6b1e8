"""What interrupts guests: an engine's epoch moves on when a guest has run out of time, or was cancelled.

There is no clock that ticks. Every guest's epoch ends with the next increment; at an increment each running
guest asks its own token whether to go on. So a guest costs nothing while it runs, and one that is due ends
within TICK, however many others there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hailmesh.hail.cancel import NEVER, CancelToken

TICK = 0.001
"""Seconds between increments while a guest is overdue: one that asked its token a moment before the
increment, and set its next epoch a moment after, hears of the following one."""


class Epochs:
    """Watches the tokens of guests that run. One thread, which starts with the first of them."""

    def __init__(self, increment: Callable[[], None]) -> None:
        """`increment` moves the engine's epoch on; any thread may do that."""
        self._increment = increment
        self._changed = threading.Condition()
        self._running: dict[object, CancelToken] = {}
        self._wakes_at = 0
        self._thread: threading.Thread | None = None

    def watch(self, guest: object, token: CancelToken) -> None:
        """From now on `guest` is interrupted when its token says so. Its own epoch must have been set
        before, or an increment in between is lost."""
        with self._changed:
            self._running[guest] = token
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="epochs", daemon=True)
                self._thread.start()
            elif token.deadline_ns < self._wakes_at:
                self._changed.notify()

    def unwatch(self, guest: object) -> None:
        with self._changed:
            self._running.pop(guest, None)

    def poke(self) -> None:
        """A token was cancelled."""
        with self._changed:
            self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic_ns()
                if any(token.cancelled or token.deadline_ns <= now for token in self._running.values()):
                    self._increment()
                    self._wakes_at = 0
                    self._changed.wait(TICK)
                    continue
                # Guests that end in time cost no wake-up: it sleeps on until the deadline it was told first.
                self._wakes_at = min((token.deadline_ns for token in self._running.values()), default=NEVER)
                idle = self._wakes_at == NEVER
                self._changed.wait(None if idle else min((self._wakes_at - now) / 1e9, threading.TIMEOUT_MAX))
