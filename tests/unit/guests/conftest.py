"""The built guests in real sandboxes, on an arena of their own, with the graphs that a test gives them; and
pictures for them."""

from __future__ import annotations

import base64
import json
import struct
import time
import zlib
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
        self.fake_graph = FakeGraph
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


# A picture of four plain quarters, 256 × 256, as JPEG, by an encoder; QUARTERS are its colours.
_BASELINE = (
    "c-s4a<NpH&0WUXCHwH#V1_nkTWcYuZ!I^=VlZ%^+gO{6&n~#r|Usyp@SV%}%T}Dn^K~K}rKu=Rw$Jolt&e+V&Tu0X-"
    "+|kX)FDN+3$Sx`|Dj>ltFvuTd2qPaKpRk~?ny9Fnzp1XNKgr<#0R}-"
    "1keiqpl^B==8JPtc{~uux13DGxOk}{y4ipy=KobRe<p_f$BLpCcva>R?uz@rPVrsa>z{AW4w2N7g!JeUq`M|FS2+459qxuLQ"
    "OM~oGhG8PfAR=}E!8KJ7x;6vBHM$_GmN2Yj?f>5d00stS00"
)
_PROGRESSIVE = (
    "c-s4a<NpH&0WUXCHwH#V1_nkTWcYuZ!I^=VlZ%^+gO{6&n~#r|Usyp@SV%}%T}Dn^K~K}rKu=Rw$Jolt&e+V&Tu0X-"
    "+|kX)FDN+3$Sx`|Dj>ltFvuTd2qPaKpRk~?ny9Fnzp1XNKgr<#AqGJXkeiqpl^B==8JPtc{~uux2RaqxSR}y0#tM{>U}Qv>V"
    "Pj!p{eO#rhnbOqNq|`Z=);cmuLnRf-"
    "0VURz*>`cHGpWQgGY9NXhw;53&2`86zYL#H|rH(T1UnktWdD;6$3>E$b59(02a8?nX3SHWJJg_uz;yjv<KLTX`+^3rMw=~E`"
    "eoITm2G1G;@&Z7O;$DV(<)#4Uq>1nuq{uP%<zq00tNbFc=wGnII|z(N#2nRWLI$+A}iL<59tcP=V7HHhU&Q?yy$`s(?l!12a"
    "%Y;P?A|K*XWY1Vpr8e?D&mMBne%0ue3P1VUASV5kZZ2vv{@`TsWo8NmfB"
)


QUARTERS = ((200, 40, 40), (40, 180, 60), (50, 60, 210), (230, 220, 90))


class Pictures:
    """Picture files from pixels [height, width, channels]."""

    def quarters(self, progressive: bool = False) -> bytes:
        """A JPEG whose quarters have the colours QUARTERS; an exact number of the arena's granules."""
        return zlib.decompress(base64.b85decode(_PROGRESSIVE if progressive else _BASELINE))

    @property
    def quarter_pixels(self) -> Array:
        pixels = np.zeros((256, 256, 3), np.uint8)
        pixels[:128, :128], pixels[:128, 128:], pixels[128:, :128], pixels[128:, 128:] = QUARTERS
        return pixels

    def noise(self, height: int, width: int, channels: int = 3) -> Array:
        return np.random.default_rng(3).integers(0, 256, (height, width, channels), dtype=np.uint8)

    def png(self, pixels: Array, palette: Array | None = None) -> bytes:
        """8 bits, or 16 for uint16; 1 to 4 channels, or indices into a palette. ISO/IEC 15948."""
        height, width, channels = pixels.shape
        colour = 3 if palette is not None else {1: 0, 2: 4, 3: 2, 4: 6}[channels]
        bits = 8 * pixels.dtype.itemsize
        rows = pixels.astype(">u2" if bits == 16 else "u1").reshape(height, -1)
        raw = b"".join(b"\0" + row.tobytes() for row in rows)
        chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))]
        if palette is not None:
            chunks.append((b"PLTE", palette.tobytes()))
        chunks += [(b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )

    def bmp(self, pixels: Array, top_down: bool = False) -> bytes:
        """24 bits, BGR, rows padded to 4 bytes, the last row first unless `top_down`."""
        height, width, _ = pixels.shape
        padding = bytes(-3 * width % 4)
        rows = pixels if top_down else pixels[::-1]
        data = b"".join(row[:, ::-1].tobytes() + padding for row in rows)
        size = struct.pack("<ii", width, -height if top_down else height)
        info = struct.pack("<I", 40) + size + struct.pack("<HHIIiiII", 1, 24, 0, len(data), 2835, 2835, 0, 0)
        return struct.pack("<2sIHHI", b"BM", 54 + len(data), 0, 0, 54) + info + data


@pytest.fixture
def pictures() -> Pictures:
    return Pictures()
