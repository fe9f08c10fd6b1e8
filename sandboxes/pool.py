"""The pool of a unit version: slots that run requests, each in a fresh sandbox."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol

from hailmesh.hail.errors import Cancelled, MeshError, UnitFault, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.sandboxes import run as runs
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.protocol import Job
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.sessions import Sessions
from hailmesh.sandboxes.unit import Unit

_SELF_TEST_NS = 10_000_000_000


class State(Enum):
    """Of a version, as far as its worker knows it: the node's version states before `loaded` and the choice
    of who serves lie outside of the worker."""

    LOADED = "loaded"
    DRAINING = "draining"
    RETIRED = "retired"


class Sink(runs.Sink, Protocol):
    """Where a run's words and its end go. Called on the slot's thread."""

    def replied(self, run: Run) -> None:
        """The reply stands in `run`; its tensors stay leased until `Pool.release`."""

    def failed(self, run: Run, error: MeshError) -> None: ...


class Pool:
    """`slots` threads, pinned to the lane. The methods are for the thread that hears the node."""

    def __init__(
        self, unit: Unit, module: LinkedModule, lane: Lane, *, slots: int, session_lived: bool = False
    ) -> None:
        self.state = State.LOADED
        self._unit = unit
        self._module = module
        self._lane = lane
        self._session_lived = session_lived
        self._queue: queue.SimpleQueue[tuple[Run, Sink] | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._runs: dict[str, Run] = {}
        self._held: dict[str, list[Tensor]] = {}
        self._sessions = Sessions(lambda: Instance(unit, module))
        self._threads = [
            threading.Thread(target=self._serve, name=f"slot-{index}", daemon=True) for index in range(slots)
        ]
        for thread in self._threads:
            thread.start()

    def self_test(self, sink: Sink) -> None:
        """Instantiates the module once. ImageError, UnitFault, DeadlineExceeded."""
        job = Job("self-test", (), time.monotonic_ns() + _SELF_TEST_NS)
        with Instance(self._unit, self._module) as instance:
            instance.check_abi(Run(job, sink, self._unit.limits.log_bytes))

    def run(self, job: Job, sink: Sink) -> None:
        """Queues a job for the next free slot; its end is told to `sink`."""
        run = Run(job, sink, self._unit.limits.log_bytes)
        with self._lock:
            refused = self._refusal(job)
            if refused is None:
                self._runs[job.id] = run
        if refused is not None:
            sink.failed(run, refused)
            return
        self._queue.put((run, sink))

    def _refusal(self, job: Job) -> MeshError | None:
        if self.state is not State.LOADED:
            return Cancelled(f"this version of unit {self._unit.name} is {self.state.value}")
        if job.id in self._runs or job.id in self._held:
            return UnitFault(f"a job {job.id!r} is in the worker already")
        if job.session and not self._session_lived:
            return UsageError(f"unit {self._unit.name} isn't session-lived: send the job without a session")
        return None

    def cancel(self, job_id: str) -> None:
        """The job ends with Cancelled soon. One that has ended already is left alone."""
        run = self._runs.get(job_id)
        if run is not None:
            run.cancel()

    def grow(self, job_id: str, part: int, size: int, ended: bool) -> None:
        run = self._runs.get(job_id)
        if run is not None:
            run.grow(part, size, ended)

    def acknowledge(self, job_id: str, nbytes: int) -> None:
        run = self._runs.get(job_id)
        if run is not None:
            run.acknowledge(nbytes)

    def release(self, job_id: str) -> None:
        """The reply's tensors were read."""
        with self._lock:
            tensors = self._held.pop(job_id, [])
        for tensor in tensors:
            tensor.let_go()

    def close_session(self, session: str) -> None:
        self._sessions.close(session)

    @property
    def inside(self) -> int:
        """Jobs that wait or run."""
        return len(self._runs)

    def drain(self, timeout: float) -> bool:
        """Takes no more jobs, and waits until all have ended; those that haven't after `timeout` seconds are
        cancelled. Whether none was."""
        with self._lock:
            self.state = State.DRAINING
            done = self._lock.wait_for(lambda: not self._runs, timeout)
            late = list(self._runs.values())
        for run in late:
            run.cancel()
        return done

    def stop(self) -> None:
        """Cancels what is inside, ends the threads, and takes everything back."""
        self.drain(0.0)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._sessions.close_all()
        for job_id in list(self._held):
            self.release(job_id)
        self.state = State.RETIRED

    def _serve(self) -> None:
        self._lane.pin()
        while (entry := self._queue.get()) is not None:
            self._answer(*entry)

    def _answer(self, run: Run, sink: Sink) -> None:
        try:
            run.token.check()
            with self._instance(run) as instance:
                instance.handle(run)
                # What the next request may need is returned before the reply is sent. Taking down windows and
                # memory takes longer (0.1 ms per MB that was touched), and nobody has to wait for it.
                if not run.job.session:
                    instance.give_back()
                self._end(run)
                sink.replied(run)
        except MeshError as error:
            self._fail(run, sink, error)
        except Exception as error:
            self._fail(run, sink, UnitFault(f"the worker failed: {type(error).__name__}: {error}"))

    @contextmanager
    def _instance(self, run: Run) -> Iterator[Instance]:
        if run.job.session:
            with self._sessions.instance(run.job.session, run.token) as instance:
                yield instance
        else:
            with Instance(self._unit, self._module) as instance:
                yield instance

    def _fail(self, run: Run, sink: Sink, error: MeshError) -> None:
        self._end(run)
        sink.failed(run, error)

    def _end(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.job.id, None)
            if run.reply_tensors:
                self._held[run.job.id] = list(run.reply_tensors.values())
            self._lock.notify_all()
