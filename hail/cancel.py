"""A cancel token: one deadline and one 'the client has gone' flag, shared by all that works on a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hailmesh.hail.errors import Cancelled, DeadlineExceeded

NEVER = 2**63 - 1


class CancelToken:
    """`deadline_ns` is a CLOCK_MONOTONIC time, comparable between processes of one machine;
    `latest_start_ns`, settable as predictions change, the time after which starting a step is pointless."""

    def __init__(self, deadline_ns: int = NEVER, latest_start_ns: int | None = None) -> None:
        self.deadline_ns = deadline_ns
        self.latest_start_ns = deadline_ns if latest_start_ns is None else latest_start_ns
        self._cancelled = threading.Event()
        self._hooks: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Idempotent. Runs the hooks registered by `on_cancel`, once."""
        with self._lock:
            if self._cancelled.is_set():
                return
            self._cancelled.set()
            hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook()

    def on_cancel(self, hook: Callable[[], object]) -> Callable[[], None]:
        """Call `hook` when cancelled (at once if it already is); returns what unregisters it."""
        with self._lock:
            if not self._cancelled.is_set():
                self._hooks.append(hook)
                return lambda: self._forget(hook)
        hook()
        return lambda: None

    def _forget(self, hook: Callable[[], object]) -> None:
        with self._lock:
            if hook in self._hooks:
                self._hooks.remove(hook)

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def remaining(self) -> float:
        """Seconds until the deadline; negative once it has passed."""
        return (self.deadline_ns - time.monotonic_ns()) / 1e9

    def check(self) -> None:
        """Raises Cancelled or DeadlineExceeded if the work should stop."""
        if self._cancelled.is_set():
            raise Cancelled("the request was cancelled")
        if time.monotonic_ns() >= self.deadline_ns:
            raise DeadlineExceeded("the deadline passed while the request ran")
