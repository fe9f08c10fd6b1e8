"""One request inside a worker: what it came with, what has been said about it since, and its answer."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Protocol

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import MeshError
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.logs import Line, Logs
from hailmesh.sandboxes.protocol import Job, Part, Stages

EMIT_WINDOW = 256 << 10
"""Bytes of chunks that may be under way to a client who hasn't read them yet."""


class Sink(Protocol):
    """Where a run's words go. Called on the thread that runs it."""

    def chunk(self, run: Run, data: bytes) -> None: ...

    def log(self, run: Run, level: int, line: str) -> None: ...


class Input:
    """A part, and how far it has grown."""

    __slots__ = ("ended", "part", "size", "view", "window")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.view: Buffer
        """What is mapped, once it is."""
        self.size = part.size
        self.ended = not part.streamed
        self.window = 0
        """The guest's address of its bytes once they are mapped."""


class Run:
    """The thread that runs it reads; the thread that hears the node calls `grow`, `acknowledge` and
    `cancel`."""

    def __init__(self, job: Job, sink: Sink, log_bytes: int) -> None:
        self.job = job
        self.token = CancelToken(job.deadline_ns)
        self.inputs = [Input(part) for part in job.parts]
        self.stages = Stages()
        self.reply: bytes | None = None
        self.reply_tensors: dict[str, Tensor] = {}
        self.failure: BaseException | None = None
        """Of the host call that failed last."""
        self.fatal: MeshError | None = None
        """Why the guest was stopped, once it was."""
        self.logs = Logs(log_bytes)
        self.interrupt: Callable[[], None] | None = None
        """Makes the guest look at the token, while it runs."""
        self._sink = sink
        self._drawn = 0
        self._unread = 0
        self._changed = threading.Condition()

    def grow(self, part: int, size: int, ended: bool) -> None:
        """A streamed part has grown to `size` bytes, and perhaps ended there. Nonsense is ignored."""
        with self._changed:
            if 0 <= part < len(self.inputs) and self.inputs[part].part.streamed:
                entry = self.inputs[part]
                entry.size = min(max(entry.size, size), entry.part.room)
                entry.ended = entry.ended or ended
                self._changed.notify_all()

    def wait_for_more(self, entry: Input, offset: int) -> int:
        """Bytes beyond `offset`, once there are some; 0 if it ended. Cancelled, DeadlineExceeded."""
        self._wait(lambda: entry.size > offset or entry.ended)
        return max(0, entry.size - offset)

    def acknowledge(self, nbytes: int) -> None:
        """The client has read that many bytes of chunks."""
        with self._changed:
            self._unread = max(0, self._unread - nbytes)
            self._changed.notify_all()

    def emit(self, chunk: bytes) -> None:
        """Sends a chunk; waits first while more than EMIT_WINDOW bytes are unread. Cancelled,
        DeadlineExceeded."""
        self._wait(lambda: self._unread <= EMIT_WINDOW)
        with self._changed:
            self._unread += len(chunk)
        self._sink.chunk(self, chunk)

    def random(self, nbytes: int) -> bytes:
        """The next bytes of a generator that the job's seed determines: SHAKE-256 of (seed, draw)."""
        self._drawn += 1
        return hashlib.shake_256(b"%d,%d" % (self.job.seed, self._drawn)).digest(nbytes)

    def drop_tensors(self) -> None:
        """There will be no reply."""
        for tensor in self.reply_tensors.values():
            tensor.let_go()
        self.reply_tensors.clear()

    def cancel(self) -> None:
        """The run ends with Cancelled soon, whatever it is doing."""
        self.token.cancel()
        with self._changed:
            self._changed.notify_all()
        interrupt = self.interrupt
        if interrupt is not None:
            interrupt()

    def log(self, lines: list[Line]) -> None:
        for level, text in lines:
            self._sink.log(self, level, text)

    def _wait(self, ready: Callable[[], bool]) -> None:
        with self._changed:
            while True:
                self.token.check()
                if ready():
                    return
                left = (self.token.deadline_ns - time.monotonic_ns()) / 1e9
                self._changed.wait(min(max(left, 0.0), threading.TIMEOUT_MAX))
