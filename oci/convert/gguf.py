"""Reads GGUF files: metadata as Python values, tensors as views of the mapped file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.quant import BLOCK, F32, U8, Array

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_KINDS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", BLOCK, 20), 8: ("Q8_0", BLOCK, 34)}
"""ggml type → name, values a block, bytes a block."""

DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` is in numpy's order (rows first); `raw` is u8 [rows, bytes a row]."""

    name: str
    kind: str
    shape: tuple[int, ...]
    raw: U8

    def q4_1(self) -> tuple[U8, F32, F32]:
        """Q4_1 as values [N, blocks, 32] in 0 to 15, scales d and minima m [N, blocks]: w = d·q + m."""
        self._expect("Q4_1")
        blocks = self.raw.reshape(self.shape[0], -1, 20)
        low, high = blocks[..., 4:] & np.uint8(15), blocks[..., 4:] >> np.uint8(4)
        return np.concatenate([low, high], -1), _halves(blocks, 0), _halves(blocks, 2)

    def q8_0(self) -> tuple[U8, F32]:
        """Q8_0 as values [N, blocks, 32] moved to 0 to 255, and scales d: w = d·(q − 128)."""
        self._expect("Q8_0")
        blocks = self.raw.reshape(self.shape[0], -1, 34)
        return blocks[..., 2:] ^ np.uint8(0x80), _halves(blocks, 0)

    def float32(self) -> F32:
        """The exact values, whatever the kind."""
        if self.kind == "Q4_1":
            q, d, m = self.q4_1()
            return (q * d[..., None] + m[..., None]).astype(np.float32).reshape(self.shape)
        if self.kind == "Q8_0":
            q, d = self.q8_0()
            return ((q.astype(np.float32) - 128) * d[..., None]).astype(np.float32).reshape(self.shape)
        stored = np.dtype("<f4" if self.kind == "F32" else "<f2")
        return self.raw.reshape(-1).view(stored).astype(np.float32).reshape(self.shape)

    def _expect(self, kind: str) -> None:
        if self.kind != kind:
            raise ImageError(f"{self.name} is stored as {self.kind}, this conversion needs {kind}")


def _halves(blocks: U8, at: int) -> F32:
    pair = np.ascontiguousarray(blocks[..., at : at + 2])
    return pair.view("<f2")[..., 0].astype(np.float32)


@dataclass(frozen=True, slots=True)
class Gguf:
    """An opened file: metadata by key, tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def __getitem__(self, key: str) -> Any:
        """A metadata value; ImageError if the file lacks it."""
        if key not in self.metadata:
            raise ImageError(f"the GGUF file has no metadata {key!r}")
        return self.metadata[key]

    def tensor(self, name: str) -> Tensor:
        """A tensor; ImageError if the file lacks it."""
        if name not in self.tensors:
            raise ImageError(f"the GGUF file has no tensor {name!r}")
        return self.tensors[name]


class _Reader:
    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.view = memoryview(mapped)
        self.data = np.frombuffer(mapped, np.uint8)
        self.at = 0

    def skip(self, size: int) -> int:
        """Where the next `size` bytes begin; the reader moves behind them."""
        start = self.at
        if start + size > len(self.data):
            raise ImageError(f"the GGUF file ends at byte {len(self.data)}, {start + size} were promised")
        self.at += size
        return start

    def scalar(self, code: str) -> Any:
        return struct.unpack_from("<" + code, self.view, self.skip(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        size = self.scalar("Q")
        start = self.skip(size)
        return str(self.view[start : start + size], "utf-8", "replace")

    def array(self, dtype: str, count: int) -> Array:
        size = count * np.dtype(dtype).itemsize
        start = self.skip(size)
        return self.data[start : start + size].view(dtype)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            if element in (_STRING, _ARRAY):
                return [self.value(element) for _ in range(count)]
            code = self._code(element).replace("?", "B")
            return self.array(np.dtype("<" + code).str, count)
        return self.scalar(self._code(kind))

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ImageError(f"the GGUF file has a metadata value of unknown type {kind}")
        return _SCALARS[kind]


def load(path: Path) -> Gguf:
    """Maps `path` and parses its head. ImageError if it is no GGUF file, is cut off, or has a tensor of a
    kind that isn't read here (F32, F16, Q4_1, Q8_0 are)."""
    reader = _Reader(path)
    if reader.array("u1", 4).tobytes() != b"GGUF" or reader.scalar("I") not in (2, 3):
        raise ImageError(f"{path.name} is not a GGUF file of version 2 or 3")
    tensor_count, value_count = reader.scalar("Q"), reader.scalar("Q")
    metadata = {}
    for _ in range(value_count):
        key = reader.string()
        metadata[key] = reader.value(reader.scalar("I"))
    heads = []
    for _ in range(tensor_count):
        name = reader.string()
        fastest_first = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
        heads.append((name, tuple(reversed(fastest_first)), reader.scalar("I"), reader.scalar("Q")))
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    start = -(-reader.at // alignment) * alignment
    tensors = {}
    for name, shape, kind, offset in heads:
        if kind not in _KINDS:
            raise ImageError(f"{name} in {path.name} has ggml type {kind}; known are {_KINDS}")
        kind_name, values, size = _KINDS[kind]
        reader.at = start + offset
        raw = reader.array("u1", math.prod(shape) // values * size)
        tensors[name] = Tensor(name, kind_name, shape, raw.reshape(math.prod(shape[:-1]), -1))
    return Gguf(metadata, tensors)
