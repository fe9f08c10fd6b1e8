"""A worker process: `python -m hailmesh.sandboxes.worker --fd N` serves one unit version over socket N.

It loads what the first frame tells, and from then on does what the frames say; see sandboxes/protocol. It
ends with `stop`, with the other end of the socket, or with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hailmesh.hail.errors import MeshError, Overloaded, UnitFault
from hailmesh.sandboxes.frames import Frames
from hailmesh.sandboxes.load import load
from hailmesh.sandboxes.pool import Pool
from hailmesh.sandboxes.protocol import Job, LoadSpec
from hailmesh.sandboxes.run import Run

SWITCH_INTERVAL = 0.0005
"""Seconds. Host calls take the GIL back; beside a busy Python thread they wait this long at most."""

MAX_FILES = 4096
_PR_SET_PDEATHSIG = 1


class NodeSink:
    """Tells the node what becomes of a run."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def _tell(self, header: dict[str, Any], payload: bytes = b"") -> None:
        # A node that has gone needs no answer: whoever hears it sees that too, and ends the process.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._frames.send(header, payload)

    def chunk(self, run: Run, data: bytes) -> None:
        self._tell({"ev": "chunk", "id": run.job.id}, data)

    def log(self, run: Run, level: int, line: str) -> None:
        self._tell({"ev": "log", "id": run.job.id, "level": level}, line.encode())

    def replied(self, run: Run) -> None:
        tensors = [
            {
                "name": name,
                "offset": tensor.buffer.offset,
                "size": tensor.buffer.nbytes,
                "dtype": int(tensor.buffer.dtype),
                "shape": list(tensor.buffer.shape),
            }
            for name, tensor in run.reply_tensors.items()
        ]
        header = {"ev": "reply", "id": run.job.id, "tensors": tensors, "stages": run.stages.wire()}
        self._tell(header, run.reply or b"")

    def failed(self, run: Run, error: MeshError) -> None:
        header: dict[str, Any] = {
            "ev": "error",
            "id": run.job.id,
            "code": error.code,
            "message": str(error),
            "stages": run.stages.wire(),
        }
        if isinstance(error, Overloaded):
            header["retry_after"] = error.retry_after
        self._tell(header)


class Worker:
    """Does what the frames say, until one says stop."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._sink = NodeSink(frames)

    def serve(self) -> None:
        """Returns when the node wants it to, with everything put away; or at once when the node has gone."""
        first = self._frames.receive()
        if first is None:
            return
        pool = self._load(first[0])
        if pool is None:
            return
        while (frame := self._frames.receive()) is not None:
            if frame[0]["op"] == "stop":
                pool.stop()
                return
            self._do(pool, frame[0])

    def _load(self, header: dict[str, Any]) -> Pool | None:
        try:
            if header.get("op") != "load":
                raise UnitFault(f"the first frame says {header.get('op')!r}, expected 'load'")
            spec = LoadSpec.of(header)
            limit_memory(spec)
            loaded = load(spec)
            pool = Pool(
                loaded.unit, loaded.module, loaded.lane, slots=spec.slots, session_lived=spec.session_lived
            )
            pool.self_test(self._sink)
        except Exception as error:
            told = error if isinstance(error, MeshError) else UnitFault(f"loading failed: {error!r}")
            self._frames.send({"ev": "state", "state": "failed", "code": told.code, "message": str(told)})
            return None
        graphs = {name: graph.describe() for name, graph in loaded.unit.graphs.items()}
        self._frames.send({"ev": "state", "state": pool.state.value, "graphs": graphs})
        return pool

    def _do(self, pool: Pool, header: dict[str, Any]) -> None:
        operations: dict[str, Callable[[], None]] = {
            "run": lambda: pool.run(Job.of(header), self._sink),
            "part": lambda: pool.grow(header["id"], header["part"], header["size"], header["ended"]),
            "ack": lambda: pool.acknowledge(header["id"], header["bytes"]),
            "cancel": lambda: pool.cancel(header["id"]),
            "release": lambda: pool.release(header["id"]),
            "close": lambda: pool.close_session(header["session"]),
        }
        operations[header["op"]]()


def confine() -> None:
    """Bounds the process, and ties its life to its parent's."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    sys.setswitchinterval(SWITCH_INTERVAL)


def limit_memory(spec: LoadSpec) -> None:
    """Bounds what the process may allocate, if the spec does: a model of 66 bytes can ask for gigabytes, and
    better it fails than the box. Counted is private memory that can be written: what the libraries take,
    guests' memories, and windows to read, of which all slots together may have as much as an arena."""
    if spec.memory:
        used = _private_bytes()
        guests = spec.slots * spec.limits.memory
        most = used + spec.memory + guests + os.fstat(spec.arena_fd).st_size
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _private_bytes() -> int:
    """What RLIMIT_DATA has counted so far; VmData of proc(5)."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hailmesh.sandboxes.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the node")
    options = parser.parse_args(arguments)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    confine()
    with socket.socket(fileno=options.fd) as end, suppress(BrokenPipeError, ConnectionResetError):
        Worker(Frames(end)).serve()
    return 0


if __name__ == "__main__":
    # Without the interpreter's clean-up: threads of native libraries may be in the middle of something.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
