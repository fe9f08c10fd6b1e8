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
from hailmesh.hail.errors import DeviceError
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


class FakeKernel:
    """A kernel that gives zeros of the shape `shape_of` tells; remembers its arguments and what it was
    given."""

    def __init__(self, shape_of: Callable[[dict[str, Any], Array], tuple[int, ...]]) -> None:
        self.calls: list[tuple[dict[str, Any], Array]] = []
        self._shape_of = shape_of

    def run(
        self,
        args: dict[str, Any],
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]:
        (given,) = (buffer.numpy().copy() for buffer in inputs)
        self.calls.append((args, given))
        return [allocate(DType.F32, self._shape_of(args, given))]


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
        self.fake_graph, self.fake_kernel = FakeGraph, FakeKernel
        self.kernels: dict[str, Any] = {name: kernel(name) for name in kernels}
        self._leases: list[Lease] = []

    @property
    def unit(self) -> Unit:
        return Unit(
            "guest",
            self.arena,
            json.dumps(self.config).encode(),
            self.graphs,
            self.kernels,
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


class Scripted:
    """Models that say what the test wrote, and tokenizers simple enough to be read by eye."""

    class Bytes:
        """Every byte is a token, and there are a few special ones."""

        def __init__(self, special: tuple[str, ...]) -> None:
            self.special = special
            self.vocabulary = 256 + len(special)
            self.encoded: list[str] = []

        def encode(self, text: str) -> list[int]:
            self.encoded.append(text)
            return list(text.encode())

        def token(self, name: str) -> int | None:
            return 256 + self.special.index(name) if name in self.special else None

        def decode_bytes(self, ids: Sequence[int]) -> bytes:
            return bytes(token for token in ids if token < 256)

        def show(self, ids: Sequence[int]) -> str:
            pieces = (
                bytes([token]) if token < 256 else f"‹{self.special[token - 256]}›".encode() for token in ids
            )
            return b"".join(pieces).decode()

    class Words:
        """Whole words are tokens; decoding drops the space before the first of them."""

        def __init__(self, words: tuple[str, ...], special: tuple[str, ...]) -> None:
            self._words, self._special = words, special
            self.vocabulary = len(words) + len(special)

        def encode(self, text: str) -> list[int]:
            return [self._words.index(text)]

        def token(self, name: str) -> int | None:
            return len(self._words) + self._special.index(name) if name in self._special else None

        def decode_bytes(self, ids: Sequence[int]) -> bytes:
            return "".join(self._words[token] for token in ids if token < len(self._words)).lstrip().encode()

    class Model:
        """A sequence engine whose next token is the script's next, with probability `certainty`; the others
        share the rest."""

        def __init__(
            self, script: list[int], vocabulary: int, context: int, bound: tuple[TensorSpec, ...] = ()
        ) -> None:
            self.script, self.vocabulary, self.context, self.bound = script, vocabulary, context, bound
            self.certainty = 0.9
            self.certainties: dict[int, float] = {}
            """Others, by how many times was fed."""
            self.opened = self.open_now = 0
            self.fed: list[list[int]] = []
            self.given: list[dict[str, Array]] = []
            self.fails_after = 1 << 30
            self.scripts: list[list[int]] = []
            """For sequences one after the other; the last one stays."""

        def open(self, max_tokens: int, token: CancelToken, level: int) -> ScriptedSequence:
            self.opened = max_tokens
            if self.scripts:
                self.script = self.scripts.pop(0)
            self.open_now += 1
            self.fed.clear()
            self.given.append({})
            return ScriptedSequence(self)


class ScriptedSequence:
    def __init__(self, model: Scripted.Model) -> None:
        self._model = model

    def bind(self, name: str, buffer: Buffer) -> None:
        self._model.given[-1][name] = buffer.numpy().copy()

    def feed(self, ids: npt.NDArray[np.int64], token: CancelToken) -> None:
        token.check()
        self._model.fed.append([int(each) for each in ids])
        assert sum(map(len, self._model.fed)) <= self._model.opened, "fed more than was asked for"
        if len(self._model.fed) > self._model.fails_after:
            raise DeviceError("the device is tired")

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        model = self._model
        certainty = model.certainties.get(len(model.fed), model.certainty)
        rest = (1 - certainty) / (model.vocabulary - 1)
        probabilities = np.full(model.vocabulary, rest, np.float32)
        probabilities[model.script[min(len(model.fed), len(model.script)) - 1]] = certainty
        return np.log(probabilities)

    def close(self) -> None:
        self._model.open_now -= 1


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


class Sounds:
    """Sound files from samples: floats from -1 to 1, [frames] or [frames, channels]."""

    def noise(self, seconds: float, rate: int = 16000, channels: int = 1) -> Array:
        """Steps of 16 bits, so that every format keeps them."""
        shape = (int(seconds * rate), channels)[: 2 if channels > 1 else 1]
        steps = np.random.default_rng(9).integers(-8000, 8000, shape)
        return (steps / 32768).astype(np.float32)

    def tone(self, hertz: float, seconds: float, rate: int) -> Array:
        return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)

    def samples(self, sound: Array, kind: str) -> bytes:
        """As u8, i16, i24, i32 or f32, little-endian."""
        if kind == "f32":
            return sound.astype("<f4").tobytes()
        bits = int(kind[1:])
        steps = np.rint(sound.astype(np.float64) * 2 ** (bits - 1)).astype(np.int64)
        if kind == "u8":
            return (steps + 128).astype(np.uint8).tobytes()
        raw = steps.astype("<i8").reshape(-1, 1).view(np.uint8)[:, : bits // 8]
        return raw.tobytes()

    def wav(
        self, sound: Array, rate: int = 16000, kind: str = "i16", claim: int | None = None, extra: bytes = b""
    ) -> bytes:
        """`claim` bytes of samples in the header instead of what there are; `extra` chunks before them."""
        channels = 1 if sound.ndim == 1 else sound.shape[1]
        width = int(kind[1:]) // 8
        tag = 3 if kind == "f32" else 1
        head = struct.pack(
            "<HHIIHH", tag, channels, rate, rate * channels * width, channels * width, 8 * width
        )
        data = self.samples(sound, kind)
        size = len(data) if claim is None else claim
        chunks = b"fmt " + struct.pack("<I", 16) + head + extra + b"data" + struct.pack("<I", size) + data
        return b"RIFF" + struct.pack("<I", (4 + len(chunks)) & 0xFFFFFFFF) + b"WAVE" + chunks

    def flac(self, sound: Array, rate: int = 16000, claim: int | None = None) -> bytes:
        """16 bits, verbatim subframes of up to 4096 frames. RFC 9639. `claim`: frames the header promises."""
        steps = np.rint(np.atleast_2d(sound.T).T.astype(np.float64) * 32768).astype(">i2")
        channels, block = steps.shape[1], 4096
        total = len(steps) if claim is None else claim
        packed = (rate << 44) | ((channels - 1) << 41) | (15 << 36) | total
        info = struct.pack(">HH", block, block) + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
        frames = (
            _flac_frame(steps[start : start + block], index)
            for index, start in enumerate(range(0, len(steps), block))
        )
        return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + b"".join(frames)


def _flac_frame(steps: Array, index: int) -> bytes:
    number = bytes([index]) if index < 128 else bytes([0xC0 | index >> 6, 0x80 | index & 0x3F])
    head = b"\xff\xf8\x70" + bytes([(steps.shape[1] - 1) << 4 | 4 << 1]) + number
    head += struct.pack(">H", len(steps) - 1)
    frame = head + bytes([_crc(head, 8, 0x07)])
    frame += b"".join(b"\x02" + steps[:, channel].tobytes() for channel in range(steps.shape[1]))
    return frame + _crc(frame, 16, 0x8005).to_bytes(2, "big")


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (bits - 1) else 0)
            value &= (1 << bits) - 1
    return value


@pytest.fixture
def sounds() -> Sounds:
    return Sounds()
