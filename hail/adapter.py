"""What device adapters share: memory from the arena, a thread that takes work by priority."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import ClassVar

from hailmesh.hail.arena import Arena, Lease, Stage
from hailmesh.hail.buffer import DType
from hailmesh.hail.device import DeviceInfo, State
from hailmesh.hail.work import Work, Worker


class BaseAdapter:
    """An adapter says what the device is (`_probe`) and how work runs on it (`_perform`)."""

    rank: ClassVar[int]

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._info: DeviceInfo | None = None
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def _probe(self) -> DeviceInfo:
        raise NotImplementedError

    def _perform(self, run: Callable[[], object]) -> None:
        run()

    def probe(self) -> DeviceInfo:
        with self._lock:
            if self._info is None:
                self._info = self._probe()
            return self._info

    def alloc(self, dtype: DType, shape: tuple[int, ...], *, owner: str) -> Lease:
        nbytes = math.prod(shape) * dtype.itemsize
        return self._arena.lease(nbytes, owner=owner, dtype=dtype, shape=shape, stage=Stage.INFER)

    def submit(self, run: Callable[[], object], *, priority: int = 0) -> Work:
        def step() -> bool:
            self._perform(run)
            return True

        work = Work(step, priority)
        with self._lock:
            if self._worker is None:
                self._worker = Worker(f"device-{type(self).__module__.rpartition('.')[2]}")
            worker = self._worker
        worker.submit(work)
        return work

    def query(self, work: Work) -> State:
        if not work.done():
            return State.RUNNING if work.started_ns else State.QUEUED
        return State.FAILED if work.error is not None else State.DONE

    def close(self) -> None:
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.close()
