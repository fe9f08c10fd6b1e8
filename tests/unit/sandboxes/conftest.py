"""Guests written in WAT by the tests themselves, and a place to run them in this process."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from wasmtime import wat2wasm

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import MeshError
from hailmesh.hail.lease import Lease
from hailmesh.sandboxes.bridge import CALLS
from hailmesh.sandboxes.client import WorkerClient
from hailmesh.sandboxes.compile import compile_module
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.protocol import Job, Limits, LoadSpec, Part
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.unit import Unit

RESULTS = 32768
"""Where a guest made by `Guest.results` collects what its expressions gave."""

_RESERVE = """
(local.set $at (global.get $heap))
(global.set $heap (i32.add (global.get $heap) (local.get $bytes)))
(drop (memory.grow (i32.shr_u (local.get $bytes) (i32.const 16))))
(if (i32.gt_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))) (then (return (i32.const 0))))
(local.get $at)"""
_TYPES = {"i": "i32", "I": "i64"}


class Guest:
    """Builds a module that exports what the ABI asks for and imports every call there is, as `$name`. Its
    memory: data from 16 on, results at RESULTS, space that mesh_reserve hands out from 256 KiB on."""

    def __init__(self) -> None:
        self._data = bytearray()

    def at(self, raw: bytes) -> int:
        """Puts bytes into the guest's memory; their address."""
        address = 16 + len(self._data)
        self._data += raw + bytes(-len(raw) % 16)
        return address

    def text(self, raw: bytes | str) -> str:
        """The same, as the two arguments pointer and length."""
        encoded = raw.encode() if isinstance(raw, str) else raw
        return f"(i32.const {self.at(encoded)}) (i32.const {len(encoded)})"

    def ints(self, *values: int) -> str:
        """An array of i32; its address as an argument."""
        return f"(i32.const {self.at(struct.pack(f'<{len(values)}i', *values))})"

    def wasm(
        self, handle: str, *, initialize: str = "", reserve: str = _RESERVE, extra: str = "", pages: int = 4
    ) -> bytes:
        """A module whose mesh_handle has this body."""
        data = "".join(f"\\{byte:02x}" for byte in self._data)
        imports = "\n".join(
            f'(import "{call.module}" "{call.name}" (func ${call.name}'
            + "".join(f" (param {_TYPES[letter]})" for letter in call.parameters)
            + "".join(f" (result {_TYPES[letter]})" for letter in call.result)
            + "))"
            for call in CALLS
        )
        return bytes(
            wat2wasm(f"""(module
            {imports}
            (memory (export "memory") {pages})
            (data (i32.const 16) "{data}")
            (global $heap (mut i32) (i32.const 262144))
            (global $count (mut i32) (i32.const 0))
            {extra}
            (func (export "_initialize") {initialize})
            (func (export "mesh_abi") (result i32) (i32.const 1))
            (func (export "mesh_reserve") (param $bytes i32) (result i32) (local $at i32) {reserve})
            (func (export "mesh_handle") (result i32)
              (local $a i32) (local $b i32) (local $c i32) (local $d i32)
              {handle}))""")
        )

    def results(self, *expressions: str, **more: Any) -> bytes:
        """A module that evaluates i32 expressions in order and replies their values as i32s."""
        stores = "\n".join(
            f"(i32.store (i32.const {RESULTS + 4 * index}) {expression})"
            for index, expression in enumerate(expressions)
        )
        reply = f"(call $reply (i32.const {RESULTS}) (i32.const {4 * len(expressions)}))"
        return self.wasm(f"{stores} {reply}", **more)


@dataclass
class Recorder:
    """A sink that keeps what it hears."""

    chunks: list[bytes] = field(default_factory=list)
    lines: list[tuple[int, str]] = field(default_factory=list)
    replies: list[Run] = field(default_factory=list)
    errors: list[MeshError] = field(default_factory=list)
    on_end: Callable[[], None] = lambda: None

    def chunk(self, run: Run, data: bytes) -> None:
        self.chunks.append(data)

    def log(self, run: Run, level: int, line: str) -> None:
        self.lines.append((level, line))

    def replied(self, run: Run) -> None:
        self.replies.append(run)
        self.on_end()

    def failed(self, run: Run, error: MeshError) -> None:
        self.errors.append(error)
        self.on_end()


class Box:
    """One unit, in this process, on an arena of its own."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.unit = Unit("test", arena)
        self.sink = Recorder()
        self._leases: list[Lease] = []

    def limit(self, **limits: int) -> None:
        self.unit = replace(self.unit, limits=replace(Limits(), **limits))

    def part(self, content: bytes, *, name: str = "part", room: int = 0, **more: Any) -> Part:
        """A part with this content, in a block of the arena."""
        lease = self.arena.lease(max(room, len(content), 1), owner="parts")
        self._leases.append(lease)
        view = self.arena.view(lease.buffer.offset, len(content), DType.U8, (len(content),))
        if content:
            view.numpy().view("u1")[...] = list(content)
        media = more.pop("type", "application/octet-stream")
        return Part(name, media, lease.buffer.offset, len(content), room or len(content), **more)

    def content(self, part: Part) -> bytes:
        """The part's bytes as the arena has them now."""
        return self.arena.view(part.offset, part.size, DType.U8, (part.size,)).numpy().tobytes()

    def job(self, *parts: Part, seconds: float = 30.0, **more: Any) -> Job:
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        return Job(more.pop("id", "job"), parts, deadline, **more)

    def new_run(self, job: Job) -> Run:
        return Run(job, self.sink, self.unit.limits.log_bytes)

    def handle(self, wasm: bytes | LinkedModule, *parts: Part, **more: Any) -> Run:
        """One request to a fresh instance; the run with its answer."""
        module = wasm if isinstance(wasm, LinkedModule) else LinkedModule(wasm)
        run = self.new_run(self.job(*parts, **more))
        with Instance(self.unit, module) as instance:
            instance.handle(run)
        return run

    def results(self, wasm: bytes | LinkedModule, *parts: Part, **more: Any) -> list[int]:
        """The values that a guest made by Guest.results replied."""
        reply = self.handle(wasm, *parts, **more).reply
        assert reply is not None
        return list(struct.unpack(f"<{len(reply) // 4}i", reply))

    def forget_parts(self) -> None:
        while self._leases:
            self._leases.pop().release()


class Workers:
    """Starts worker processes on spans of one arena, each for a module."""

    def __init__(self) -> None:
        self.arena = Arena.create(128 << 20)
        self._exit = ExitStack()
        self._exit.enter_context(self.arena.lease(GRANULE, owner="gate"))
        self._row = 0

    def start(self, wasm: bytes, *, fds: tuple[int, ...] = (), **spec: Any) -> WorkerClient:
        native = os.memfd_create("native")
        self._exit.callback(os.close, native)
        os.write(native, compile_module(wasm))
        span = self._exit.enter_context(self.arena.span(16 << 20, owner="worker"))
        self._row += 1
        loading = LoadSpec(
            unit="test",
            version="1",
            digest="sha256:unit",
            module_fd=native,
            module_digest="sha256:module",
            arena_fd=self.arena.fd,
            arena_offset=span.buffer.offset,
            arena_size=span.buffer.nbytes,
            gate_row=self._row,
            **spec,
        )
        return self._exit.enter_context(WorkerClient(loading, fds))

    def part(self, content: bytes, *, room: int = 0, **more: Any) -> Part:
        lease = self._exit.enter_context(self.arena.lease(max(room, len(content)), owner="parts"))
        view = self.arena.view(lease.buffer.offset, len(content), DType.U8, (len(content),))
        view.numpy()[...] = np.frombuffer(content, np.uint8)
        return Part("part", "text/plain", lease.buffer.offset, len(content), room or len(content), **more)

    def close(self) -> None:
        self._exit.close()
        self.arena.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def box() -> Iterator[Box]:
    with Arena.create(64 << 20) as arena:
        made = Box(arena)
        yield made
        made.forget_parts()
        assert arena.count == 0, "a lease was left behind"
