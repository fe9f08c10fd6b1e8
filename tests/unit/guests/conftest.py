"""The built guests in real sandboxes, on an arena of their own, with the graphs that a test gives them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.kernels.executor import Allocate, TensorSpec, check_tensors
from hailmesh.kernels.registry import kernel
from hailmesh.sandboxes.guests import built
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.protocol import Job, Limits, Part
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.unit import Graph, Unit

Array = npt.NDArray[Any]
Compute = Callable[..., "tuple[Array, ...]"]


class FakeGraph:
    """An executor whose graph is a Python function from arrays to arrays; remembers what it was given."""

    def __init__(
        self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], compute: Compute
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.given: list[tuple[Array, ...]] = []
        self._compute = compute

    def run(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]:
        token.check()
        check_tensors("input", self.inputs, inputs)
        self.given.append(tuple(buffer.numpy().copy() for buffer in inputs))
        results = self._compute(*self.given[-1])
        filled: list[Buffer | None] = []
        for want, result in zip(wanted, results, strict=True):
            buffer = allocate(DType.of(result.dtype), result.shape) if want else None
            if buffer is not None:
                buffer.numpy()[...] = result
            filled.append(buffer)
        return filled

    def close(self) -> None:
        pass


@dataclass
class Answer:
    """What a run left behind."""

    body: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    run: Run | None = None


@dataclass
class Recorder:
    """A sink that keeps what it hears."""

    chunks: list[bytes] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def chunk(self, run: Run, data: bytes) -> None:
        self.chunks.append(data)

    def log(self, run: Run, level: int, line: str) -> None:
        self.lines.append(line)


class Bench:
    """One unit around a built guest."""

    def __init__(self, arena: Arena, module: LinkedModule, kernels: tuple[str, ...]) -> None:
        self.arena = arena
        self.module = module
        self.sink = Recorder()
        self.config: dict[str, Any] = {}
        self.graphs: dict[str, Graph] = {}
        self.memory = 512 << 20
        self._kernels = kernels
        self._leases: list[Lease] = []

    @property
    def unit(self) -> Unit:
        return Unit(
            "guest",
            self.arena,
            json.dumps(self.config).encode(),
            self.graphs,
            {name: kernel(name) for name in self._kernels},
            Limits(memory=self.memory),
        )

    def part(self, content: bytes, type_: str = "application/octet-stream", name: str = "part") -> Part:
        lease = self.arena.lease(max(len(content), 1), owner="parts")
        self._leases.append(lease)
        if content:
            view = self.arena.view(lease.buffer.offset, len(content), DType.U8, (len(content),))
            view.numpy()[...] = np.frombuffer(content, np.uint8)
        return Part(name, type_, lease.buffer.offset, len(content), len(content))

    def tensor(self, name: str, array: Array) -> Part:
        part = self.part(array.tobytes(), "tensor", name)
        shape = tuple(array.shape)
        return Part(name, "tensor", part.offset, part.size, part.room, False, DType.of(array.dtype), shape)

    def streamed(self, content: bytes, type_: str, room: int) -> Part:
        """A part that has `content` so far, and room for more."""
        part = self.part(content + bytes(room - len(content)), type_)
        return Part("part", type_, part.offset, len(content), room, streamed=True)

    def params(self, **params: Any) -> Part:
        return self.part(json.dumps(params).encode(), "application/json", "params")

    def run_of(self, *parts: Part, seconds: float = 60.0) -> Run:
        job = Job("job", parts, time.monotonic_ns() + int(seconds * 1e9), seed=7)
        return Run(job, self.sink, Limits().log_bytes)

    def ask(self, *parts: Part, **params: Any) -> Answer:
        """One request to a fresh sandbox; raises the MeshError of a refusal."""
        run = self.run_of(*parts, *([self.params(**params)] if params else []))
        with Instance(self.unit, self.module) as instance:
            return self.answer(instance, run)

    def answer(self, instance: Instance, run: Run) -> Answer:
        self.sink.chunks.clear()
        instance.handle(run)
        tensors = {name: tensor.buffer.numpy().copy() for name, tensor in run.reply_tensors.items()}
        run.drop_tensors()
        assert run.reply is not None
        chunks = [json.loads(chunk) for chunk in self.sink.chunks]
        return Answer(json.loads(run.reply), tensors, chunks, run)

    def release_parts(self) -> None:
        while self._leases:
            self._leases.pop().release()


@pytest.fixture(scope="session")
def modules() -> Callable[[str], LinkedModule]:
    """The built guests, each compiled once."""
    compiled: dict[str, LinkedModule] = {}

    def module(name: str) -> LinkedModule:
        if name not in compiled:
            compiled[name] = LinkedModule(built.find(name).read_bytes())
        return compiled[name]

    return module


@pytest.fixture
def bench_of(modules: Callable[[str], LinkedModule]) -> Iterator[Callable[..., Bench]]:
    """Makes benches; in the end, nothing of what they leased may be left."""
    with Arena.create(512 << 20) as arena:
        benches: list[Bench] = []

        def make(name: str, kernels: tuple[str, ...] = ()) -> Bench:
            benches.append(Bench(arena, modules(name), kernels))
            return benches[-1]

        yield make
        for bench in benches:
            bench.release_parts()
        assert arena.count == 0, "a lease was left behind"
