"""The node's side of a worker process: start it, talk to it in frames, notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from hailmesh.hail.errors import MeshError, UnitFault, from_wire
from hailmesh.sandboxes.protocol import MAX_HEADER, MAX_PAYLOAD, PREFIX, Job, LoadSpec, pack

log = structlog.get_logger()

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
        self._jobs: dict[str, asyncio.Queue[Event]] = {}
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

    async def run(self, job: Job, *, op: str = "run") -> AsyncIterator[bytes | Reply]:
        """Chunks as the unit emits them, then one Reply. MeshError if the unit gives none. The caller
        must `release` the job once it has read the reply's tensors."""
        if not self.alive:
            raise UnitFault(f"the worker of unit {self.spec.unit} is gone; try again in a moment")
        events: asyncio.Queue[Event] = asyncio.Queue()
        self._jobs[job.id] = events
        finished = False
        try:
            self._send({"op": op, **job.wire()})
            while True:
                event = await events.get()
                if isinstance(event, bytes):
                    yield event
                    self._send({"op": "ack", "id": job.id, "bytes": len(event)})
                    continue
                finished = True
                if isinstance(event, Reply):
                    yield event
                    return
                raise event
        finally:
            self._jobs.pop(job.id, None)
            if not finished:
                self.cancel(job.id)

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
        if self.alive and self._transport is not None:
            self._transport.write(pack(header))

    def _frame(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["ev"]
        if kind == "log":
            self._on_log(header, payload.decode("utf-8", "replace"))
        elif kind == "state":
            self._state(header)
        elif (events := self._jobs.get(header["id"])) is not None:
            events.put_nowait(self._event(kind, header, payload))
        elif kind == "reply":
            self.release(header["id"])

    def _state(self, header: dict[str, Any]) -> None:
        assert self._loaded is not None
        if self._loaded.done():
            return
        if header["state"] == "failed":
            self._loaded.set_exception(from_wire(header.get("code", "unit_fault"), header["message"]))
        elif header["state"] == "loaded":
            self.details = header
            self._loaded.set_result(header)

    def _event(self, kind: str, header: dict[str, Any], payload: bytes) -> Event:
        if kind == "chunk":
            return payload
        if kind == "reply":
            return Reply(payload, header.get("tensors", []), header.get("stages", {}))
        return from_wire(header["code"], header["message"], retry_after=header.get("retry_after", 1.0))

    def _end(self) -> None:
        self._ended.set()
        lost = UnitFault(f"the worker of unit {self.spec.unit} ended while the request was inside it")
        for events in self._jobs.values():
            events.put_nowait(lost)
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(UnitFault(f"the worker of unit {self.spec.unit} ended while loading"))
            self._loaded.exception()
        self._on_exit(self)
