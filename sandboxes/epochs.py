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

LINGER = 10.0
"""Seconds that the thread stays without a guest to watch."""


class Epochs:
    """Watches the tokens of guests that run. One thread, which starts with the first of them."""

    def __init__(self, increment: Callable[[], None]) -> None:
        """`increment` moves the engine's epoch on; any thread may do that."""
        self._increment = increment
        self._changed = threading.Condition()
        self._running: dict[object, CancelToken] = {}
        self._wakes_at = NEVER
        self._thread: threading.Thread | None = None

    def watch(self, guest: object, token: CancelToken) -> None:
        """From now on `guest` is interrupted when its token says so. Its own epoch must have been set
        before, or an increment in between is lost."""
        self._running[guest] = token
        # Most guests end before the deadline that the thread sleeps until, and take no lock at all.
        if token.deadline_ns < self._wakes_at:
            self._wake()

    def unwatch(self, guest: object) -> None:
        self._running.pop(guest, None)

    def poke(self) -> None:
        """A token was cancelled."""
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="epochs", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _loop(self) -> None:
        with self._changed:
            while True:
                # Before it looks: whoever comes while it looks must wake it.
                self._wakes_at = NEVER
                now = time.monotonic_ns()
                tokens = list(self._running.values())
                if any(token.cancelled or token.deadline_ns <= now for token in tokens):
                    self._increment()
                    self._changed.wait(TICK)
                    continue
                if not tokens:
                    self._changed.wait(LINGER)
                    if not self._running:
                        self._thread = None
                        return
                    continue
                self._wakes_at = min(token.deadline_ns for token in tokens)
                self._changed.wait(min((self._wakes_at - now) / 1e9, threading.TIMEOUT_MAX))
