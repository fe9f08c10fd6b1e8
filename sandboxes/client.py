"""A blocking client of a worker process, for tests, benchmarks and tools. The node's own, in mesh/workers,
lives on an event loop."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hailmesh.hail.errors import MeshError, UnitFault, from_wire
from hailmesh.sandboxes.frames import Frames
from hailmesh.sandboxes.protocol import Job, LoadSpec

_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


@dataclass(frozen=True, slots=True)
class Reply:
    """A job's answer. `tensors` are as on the wire: name, offset, size, dtype, shape."""

    body: bytes
    tensors: list[dict[str, Any]]
    stages: dict[str, float]


@dataclass(slots=True)
class Running:
    """A job inside the worker."""

    id: str
    events: queue.SimpleQueue[bytes | Reply | MeshError] = field(default_factory=queue.SimpleQueue)


class WorkerClient:
    """Starts a worker; a context manager that ends it. `logs` are the lines it logged: (job, level, line)."""

    def __init__(self, spec: LoadSpec, fds: tuple[int, ...] = ()) -> None:
        """Waits until the unit is loaded; raises what the worker says is wrong. `fds` are inherited besides
        those that the spec names."""
        self.logs: list[tuple[str, int, str]] = []
        self.details: dict[str, Any] = {}
        self._running: dict[str, Running] = {}
        self._lock = threading.Lock()
        self._loaded: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        ours, theirs = socket.socketpair()
        self._frames = Frames(ours)
        with theirs:
            inherited = {theirs.fileno(), spec.arena_fd, spec.module_fd, *fds}
            for graph in spec.graphs.values():
                inherited |= {graph.fd, graph.tokenizer_fd}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hailmesh.sandboxes.worker", "--fd", str(theirs.fileno())],
                pass_fds=[fd for fd in inherited if fd >= 0],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
            )
        self._reader = threading.Thread(target=self._read, name="worker-client", daemon=True)
        self._reader.start()
        try:
            with suppress(OSError):
                self._frames.send({"op": "load", **spec.wire()})
            state = self._loaded.get()
            if state is None:
                raise UnitFault("the worker ended while loading")
            if state["state"] == "failed":
                raise from_wire(state["code"], state["message"])
            self.details = state
        except BaseException:
            self.close()
            raise

    def run(self, job: Job, *, acknowledge: bool = True) -> Reply:
        """Runs a job to its end, dropping its chunks; raises the error it ends with. Its tensors stay leased
        until `release`."""
        for event in self.events(self.start(job), acknowledge=acknowledge):
            if isinstance(event, Reply):
                return event
        raise UnitFault("the job ended without a reply")

    def start(self, job: Job) -> Running:
        """Gives the worker a job without waiting for its end."""
        running = Running(job.id)
        with self._lock:
            self._running[job.id] = running
        self._frames.send({"op": "run", **job.wire()})
        return running

    def events(self, running: Running, *, acknowledge: bool = True) -> Iterator[bytes | Reply]:
        """Chunks as they come, then the reply; raises the error instead if there is one."""
        while True:
            event = running.events.get()
            if isinstance(event, MeshError):
                raise event
            yield event
            if isinstance(event, Reply):
                return
            if acknowledge:
                self.acknowledge(running.id, len(event))

    def acknowledge(self, job_id: str, nbytes: int) -> None:
        self._frames.send({"op": "ack", "id": job_id, "bytes": nbytes})

    def grow(self, job_id: str, part: int, size: int, *, ended: bool = False) -> None:
        self._frames.send({"op": "part", "id": job_id, "part": part, "size": size, "ended": ended})

    def cancel(self, job_id: str) -> None:
        self._frames.send({"op": "cancel", "id": job_id})

    def release(self, job_id: str) -> None:
        self._frames.send({"op": "release", "id": job_id})

    def close_session(self, session: str) -> None:
        self._frames.send({"op": "close", "session": session})

    def close(self) -> None:
        """Ends the worker. Idempotent."""
        try:
            self._frames.send({"op": "stop"})
            self.process.wait(5.0)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self._frames.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read(self) -> None:
        try:
            while (frame := self._frames.receive()) is not None:
                self._heard(*frame)
        except OSError:
            pass
        self._loaded.put(None)
        with self._lock:
            lost, self._running = list(self._running.values()), {}
        for running in lost:
            running.events.put(UnitFault("the worker ended while the job was inside it"))

    def _heard(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["ev"]
        if kind == "state":
            self._loaded.put(header)
        elif kind == "log":
            self.logs.append((header["id"], header["level"], payload.decode()))
        elif kind == "chunk":
            self._running[header["id"]].events.put(payload)
        else:
            with self._lock:
                running = self._running.pop(header["id"])
            if kind == "reply":
                running.events.put(Reply(payload, header["tensors"], header["stages"]))
            else:
                running.events.put(
                    from_wire(header["code"], header["message"], retry_after=header.get("retry_after", 1.0))
                )
