"""Work and Worker: a thread that takes the most important piece of work, step by step."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from hailmesh.hail.errors import Cancelled, DeviceError, MeshError

Step = Callable[[], bool]
"""Does a bounded piece, and returns whether that was the last."""


class Work:
    """The event of a piece of work: what was asked, whether it is done, what became of it.
    Times are CLOCK_MONOTONIC nanoseconds, 0 while unknown."""

    def __init__(self, step: Step, priority: int) -> None:
        self.priority = priority
        self.queued_ns = time.monotonic_ns()
        self.started_ns = 0
        self.finished_ns = 0
        self.error: MeshError | None = None
        self._step = step
        self._cancelled = False
        self._done = threading.Event()

    def done(self) -> bool:
        """Whether nothing of it will run any more; what `Lease.quarantine` takes."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is done, `timeout` seconds at most; whether it is."""
        return self._done.wait(timeout)

    def check(self) -> None:
        """Raises what went wrong, if something did."""
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """It ends with Cancelled before its next step. A step that runs is finished: until `done`, it may
        still write."""
        self._cancelled = True

    def _advance(self) -> bool:
        self.started_ns = self.started_ns or time.monotonic_ns()
        try:
            if self._cancelled:
                raise Cancelled("the work was cancelled")
            finished = self._step()
        except MeshError as error:
            self._finish(error)
            return True
        except Exception as error:
            self._finish(DeviceError(f"the work failed: {type(error).__name__}: {error}"))
            return True
        if finished:
            self._finish(None)
        return finished

    def _finish(self, error: MeshError | None) -> None:
        self.error = error
        self.finished_ns = time.monotonic_ns()
        self._done.set()


class Worker:
    """One thread. Between two steps it turns to whatever has the highest priority; equals go in the order
    they came."""

    def __init__(self, name: str, *, on_start: Callable[[], None] | None = None) -> None:
        self._on_start = on_start
        self._queue: list[tuple[int, int, Work]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Queues it. Cancelled if the worker is closed."""
        with self._changed:
            if self._closed:
                raise Cancelled("the worker is closed; submit before closing it")
            heapq.heappush(self._queue, (-work.priority, next(self._order), work))
            self._changed.notify()

    def close(self) -> None:
        """Ends after the step that runs; what is queued ends with Cancelled. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        if self._on_start is not None:
            self._on_start()
        entry: tuple[int, int, Work] | None = None
        while True:
            with self._changed:
                if entry is not None:
                    heapq.heappush(self._queue, entry)
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    break
                entry = heapq.heappop(self._queue)
            if entry[2]._advance():
                entry = None
        for _, _, work in self._queue:
            work._finish(Cancelled("the worker was closed before the work was done"))
        self._queue.clear()
