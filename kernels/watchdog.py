"""Ends runs of native code when their token is cancelled or its deadline passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from hailmesh.hail.cancel import NEVER, CancelToken

Stop = Callable[[], None]


class Watchdog:
    """One thread for all runs of the process. It sleeps until the earliest deadline it was ever told, so
    that a run which ends in time costs no wake-up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[int, Stop]] = {}
        self._wakes_at = 0
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, token: CancelToken, stop: Stop) -> Iterator[None]:
        """Inside the block, `stop` is called once when `token` is cancelled or its deadline passes. It may
        still be called just after the block was left, so it must be harmless then."""
        forget = token.on_cancel(stop)
        key = object()
        if token.deadline_ns != NEVER:
            self._watch(key, token.deadline_ns, stop)
        try:
            yield
        finally:
            forget()
            with self._changed:
                self._watched.pop(key, None)

    def _watch(self, key: object, deadline_ns: int, stop: Stop) -> None:
        with self._changed:
            self._watched[key] = (deadline_ns, stop)
            if self._thread is None:
                self._wakes_at = deadline_ns
                self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)
                self._thread.start()
            elif deadline_ns < self._wakes_at:
                self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic_ns()
                due = [key for key, (deadline, _) in self._watched.items() if deadline <= now]
                stops = [self._watched.pop(key)[1] for key in due]
                if not stops:
                    self._wakes_at = min((deadline for deadline, _ in self._watched.values()), default=NEVER)
                    idle = self._wakes_at == NEVER
                    self._changed.wait(None if idle else (self._wakes_at - now) / 1e9)
            for stop in stops:
                stop()


@cache
def shared() -> Watchdog:
    """The process's own; its thread starts with the first deadline."""
    return Watchdog()
