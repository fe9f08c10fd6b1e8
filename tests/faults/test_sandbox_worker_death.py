"""Worker processes that die, and parents that do: who notices, and what is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest
from wasmtime import wat2wasm

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.errors import UnitFault
from hailmesh.hail.lease import Lease
from hailmesh.sandboxes.client import Reply, WorkerClient
from hailmesh.sandboxes.compile import compile_module
from hailmesh.sandboxes.protocol import Job, LoadSpec, Part

WAITS_FOR_ITS_PART = """(module
  (import "mesh_v1" "part_wait" (func $wait (param i32 i32) (result i32)))
  (import "mesh_v1" "tensor_new" (func $new (param i32 i32 i32) (result i32)))
  (import "mesh_v1" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 16) "answered")
  (func (export "_initialize"))
  (func (export "mesh_abi") (result i32) (i32.const 1))
  (func (export "mesh_reserve") (param i32) (result i32) (i32.const 0))
  (func (export "mesh_handle") (result i32)
    (drop (call $new (i32.const 3) (i32.const 0) (i32.const 0)))
    (drop (call $wait (i32.const 0) (i32.const 0)))
    (call $reply (i32.const 16) (i32.const 8))))"""


class Node:
    """The node's part: an arena, a span for the worker, the worker's code."""

    def __init__(self, exit: ExitStack) -> None:
        self.arena = exit.enter_context(Arena.create(32 << 20))
        exit.enter_context(self.arena.lease(GRANULE, owner="gate"))
        self.native = os.memfd_create("native")
        exit.callback(os.close, self.native)
        os.write(self.native, compile_module(bytes(wat2wasm(WAITS_FOR_ITS_PART))))
        self.span: Lease = exit.enter_context(self.arena.span(8 << 20, owner="worker"))
        self._part: Lease = exit.enter_context(self.arena.lease(100, owner="parts"))

    def spec(self) -> LoadSpec:
        span = self.span.buffer
        return LoadSpec(
            unit="test",
            version="1",
            digest="sha256:unit",
            module_fd=self.native,
            module_digest="sha256:module",
            arena_fd=self.arena.fd,
            arena_offset=span.offset,
            arena_size=span.nbytes,
            gate_row=1,
        )

    def job(self, name: str, *, streamed: bool) -> Job:
        part = Part("p", "text/plain", self._part.buffer.offset, 0, 100, streamed)
        return Job(name, (part,), time.monotonic_ns() + 3600_000_000_000)


@pytest.fixture
def node() -> Iterator[Node]:
    with ExitStack() as exit:
        yield Node(exit)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(0.01)


def test_a_killed_worker_fails_the_jobs_inside_it_and_no_others(node: Node) -> None:
    with WorkerClient(node.spec()) as client:
        inside = [client.start(node.job(name, streamed=True)) for name in ("one", "two", "queued")]
        client.process.kill()
        for running in inside:
            with pytest.raises(UnitFault, match="ended while the job was inside"):
                list(client.events(running))
    with WorkerClient(node.spec()) as client:
        assert client.run(node.job("next", streamed=False)).body == b"answered"


@pytest.mark.parametrize("number", range(3))
def test_a_worker_that_is_killed_at_any_moment_harms_nobody(node: Node, number: int) -> None:
    """The next worker on the same span starts with a clean allocator, whatever the last one held."""
    with WorkerClient(node.spec()) as client:
        running = [client.start(node.job(str(index), streamed=index % 10 == 0)) for index in range(20)]
        seen = 0
        while seen < number:
            seen += isinstance(next(client.events(running[seen + 1])), Reply)
        client.process.send_signal(signal.SIGKILL)
    with WorkerClient(node.spec()) as client:
        assert client.run(node.job("next", streamed=False)).body == b"answered"


def test_a_client_learns_that_its_worker_died_while_loading(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hailmesh.sandboxes.client.sys.executable", "/bin/false")
    with pytest.raises(UnitFault, match="while loading"):
        WorkerClient(node.spec())


def test_a_worker_ends_with_its_parent(node: Node) -> None:
    """Also when the parent has no time to say goodbye and another process keeps the socket open."""
    script = (
        "import orjson, os, signal, sys\n"
        "from hailmesh.sandboxes.client import WorkerClient\n"
        "from hailmesh.sandboxes.protocol import LoadSpec\n"
        "client = WorkerClient(LoadSpec.of(orjson.loads(sys.argv[1])))\n"
        "if os.fork() == 0: signal.pause()\n"
        "print(client.process.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, orjson.dumps(node.spec().wire()).decode()],
        pass_fds=[node.native, node.arena.fd],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert _alive(worker)
        parent.kill()
        parent.wait()
        eventually(lambda: not _alive(worker))
        os.killpg(parent.pid, signal.SIGKILL)


def _alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
