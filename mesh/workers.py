"""The node's side of a worker process: start it, talk to it in frames, notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, MeshError, UnitFault, from_wire
from hailmesh.sandboxes.protocol import MAX_HEADER, MAX_PAYLOAD, PREFIX, Job, LoadSpec, pack

log = structlog.get_logger()

GRACE = 0.5
"""Seconds that a worker gets to say by itself that a deadline has passed."""

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PYTHONSAFEPATH": "1",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's final answer to a job. `tensors` are as on the wire: name, offset, size, dtype, shape."""

    body: bytes
    tensors: list[dict[str, Any]]
    stages: dict[str, float]


Event = bytes | Reply | MeshError
"""A chunk, the reply, or why there is none."""


@dataclass(slots=True)
class _Running:
    """A job inside the worker. `events` is None once nobody waits for them any more."""

    events: asyncio.Queue[Event] | None
    settled: Callable[[], None]


class _Frames(asyncio.Protocol):
    """Cuts the byte stream into frames; hands each to `on_frame`."""

    def __init__(self, on_frame: Callable[[dict[str, Any], bytes], None], on_end: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._data = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= PREFIX.size:
            head, payload = PREFIX.unpack_from(self._data)
            if head > MAX_HEADER or payload > MAX_PAYLOAD:
                log.error("worker sent an oversized frame", header=head, payload=payload)
                if self.transport is not None:
                    self.transport.abort()
                return
            end = PREFIX.size + head + payload
            if len(self._data) < end:
                return
            header = orjson.loads(bytes(self._data[PREFIX.size : PREFIX.size + head]))
            body = bytes(self._data[PREFIX.size + head : end])
            del self._data[:end]
            self._on_frame(header, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class Worker:
    """One worker process. Owned by one event loop; `on_log` and `on_exit` are called on it."""

    def __init__(
        self,
        spec: LoadSpec,
        *,
        on_log: Callable[[dict[str, Any], str], None],
        on_exit: Callable[[Worker], None],
    ) -> None:
        self.spec = spec
        self.details: dict[str, Any] = {}
        self.pid = 0
        self._on_log = on_log
        self._on_exit = on_exit
        self._jobs: dict[str, _Running] = {}
        self._loaded: asyncio.Future[dict[str, Any]] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()

    async def start(self, fds: tuple[int, ...]) -> None:
        """Spawns the process, which inherits `fds`, and sends it the LoadSpec. Doesn't wait for the load."""
        loop = asyncio.get_running_loop()
        self._loaded = loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hailmesh.sandboxes.worker",
                "--fd",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(), *fds),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, **WORKER_ENVIRONMENT},
                start_new_session=True,
            )
        self.pid = self._process.pid
        ours.setblocking(False)
        transport, _ = await loop.create_unix_connection(lambda: _Frames(self._frame, self._end), sock=ours)
        self._transport = transport
        self._send({"op": "load", **self.spec.wire()})

    async def loaded(self) -> dict[str, Any]:
        """Waits until the unit is loaded and warm; returns the details the worker reports about it."""
        assert self._loaded is not None, "start() comes first"
        return await asyncio.shield(self._loaded)

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._ended.is_set()

    @property
    def busy(self) -> int:
        """Jobs inside the worker."""
        return len(self._jobs)

    @contextlib.contextmanager
    def job(
        self, job: Job, token: CancelToken, settled: Callable[[], None]
    ) -> Iterator[AsyncIterator[bytes | Reply]]:
        """Gives the worker a job for the length of the block, which gets an iterator: chunks as the unit
        emits them, then one Reply. It raises a MeshError if the unit gives none; Cancelled or
        DeadlineExceeded as the token says, also when the worker doesn't answer any more.

        After a Reply the caller must `release` the job once it has read the tensors. Leaving the block
        early cancels the job. `settled` is called once, when the worker can't touch the job's parts any
        more: that may be after the block.
        """
        if not self.alive:
            settled()
            raise UnitFault(f"the worker of unit {self.spec.unit} is gone; try again in a moment")
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        self._jobs[job.id] = _Running(events, settled)
        forget = token.on_cancel(
            lambda: loop.call_soon_threadsafe(events.put_nowait, Cancelled("the client went away"))
        )
        late = DeadlineExceeded(f"unit {self.spec.unit} did not answer within the deadline")
        timer = loop.call_later(max(0.0, token.remaining()) + GRACE, events.put_nowait, late)
        try:
            self._send({"op": "run", **job.wire()})
            yield self._events(job.id, events)
        finally:
            forget()
            timer.cancel()
            running = self._jobs.get(job.id)
            if running is not None:
                running.events = None
                self.cancel(job.id)
            while not events.empty():
                if isinstance(events.get_nowait(), Reply):
                    self.release(job.id)

    async def _events(self, job_id: str, events: asyncio.Queue[Event]) -> AsyncIterator[bytes | Reply]:
        while True:
            event = await events.get()
            if isinstance(event, MeshError):
                raise event
            yield event
            if isinstance(event, Reply):
                return
            self._send({"op": "ack", "id": job_id, "bytes": len(event)})

    def cancel(self, job_id: str) -> None:
        self._send({"op": "cancel", "id": job_id})

    def release(self, job_id: str) -> None:
        """The reply's tensors were read: the worker may lease their blocks again."""
        self._send({"op": "release", "id": job_id})

    def part(self, job_id: str, part: int, size: int, ended: bool) -> None:
        """A streamed part has grown to `size` bytes."""
        self._send({"op": "part", "id": job_id, "part": part, "size": size, "ended": ended})

    def close_session(self, session: str) -> None:
        self._send({"op": "close", "session": session})

    async def stop(self, grace: float = 5.0) -> None:
        """Asks the process to end, and kills it after `grace` seconds."""
        self._send({"op": "stop"})
        process = self._process
        if process is None:
            return
        try:
            await asyncio.wait_for(process.wait(), grace)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
        if self._transport is not None:
            self._transport.close()

    def _send(self, header: dict[str, Any]) -> None:
        if self.alive and self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(header))

    def _frame(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["ev"]
        if kind == "log":
            self._on_log(header, payload.decode("utf-8", "replace"))
        elif kind == "state":
            self._state(header)
        elif kind == "chunk":
            running = self._jobs.get(header["id"])
            if running is not None and running.events is not None:
                running.events.put_nowait(payload)
        else:
            self._settle(header["id"], self._outcome(kind, header, payload))

    def _settle(self, job_id: str, outcome: Reply | MeshError) -> None:
        running = self._jobs.pop(job_id, None)
        if running is not None and running.events is not None:
            running.events.put_nowait(outcome)
        elif isinstance(outcome, Reply):
            self.release(job_id)
        if running is not None:
            running.settled()

    def _state(self, header: dict[str, Any]) -> None:
        assert self._loaded is not None
        if self._loaded.done():
            return
        if header["state"] == "failed":
            self._loaded.set_exception(from_wire(header.get("code", "unit_fault"), header["message"]))
        else:
            self.details = header
            self._loaded.set_result(header)

    def _outcome(self, kind: str, header: dict[str, Any], payload: bytes) -> Reply | MeshError:
        if kind == "reply":
            return Reply(payload, header.get("tensors", []), header.get("stages", {}))
        return from_wire(header["code"], header["message"], retry_after=header.get("retry_after", 1.0))

    def _end(self) -> None:
        self._ended.set()
        lost = UnitFault(f"the worker of unit {self.spec.unit} ended while the request was inside it")
        for job_id in list(self._jobs):
            self._settle(job_id, lost)
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(UnitFault(f"the worker of unit {self.spec.unit} ended while loading"))
            self._loaded.exception()
        self._on_exit(self)
