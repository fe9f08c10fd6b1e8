"""Reads CTranslate2 `model.bin` files: weights by name, as views of its content.

Format, little-endian, strings as u16 length (with the closing NUL) and bytes: u32 version, string spec,
u32 revision, u32 count; per variable: string name, u8 rank, u32 dims, u8 type, u32 bytes, data; then u32
count of aliases, each two strings. Source: ctranslate2's `specs/model_spec.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.quant import F32, Array

_TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
VERSION = 6


@dataclass(frozen=True, slots=True)
class Model:
    """`spec` names the architecture, such as WhisperSpec; weights are [out, in]."""

    spec: str
    variables: Mapping[str, Array]

    def float32(self, name: str) -> F32:
        """A variable as float32; ImageError if the file lacks it."""
        if name not in self.variables:
            raise ImageError(f"the CTranslate2 model has no variable {name!r}")
        return self.variables[name].astype(np.float32)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.at = 0

    def skip(self, size: int) -> int:
        """Where the next `size` bytes begin; the reader moves behind them."""
        start = self.at
        if start + size > len(self.data):
            raise ImageError(
                f"the CTranslate2 model ends at byte {len(self.data)}, {start + size} were promised"
            )
        self.at += size
        return start

    def number(self, code: str) -> int:
        return int(struct.unpack_from("<" + code, self.data, self.skip(struct.calcsize(code)))[0])

    def string(self) -> str:
        size = self.number("H")
        start = self.skip(size)
        return self.data[start : start + size].rstrip(b"\0").decode()


def load(path: Path) -> Model:
    """Reads and parses `path`. ImageError if it is another version or is cut off."""
    reader = _Reader(path)
    version = reader.number("I")
    if version != VERSION:
        raise ImageError(f"{path.name}: expected a CTranslate2 model of version {VERSION}, found {version}")
    spec = reader.string()
    reader.number("I")
    variables: dict[str, Array] = {}
    for _ in range(reader.number("I")):
        name = reader.string()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        kind = reader.number("B")
        size = reader.number("I")
        if kind not in _TYPES or size != math.prod(shape) * np.dtype(_TYPES[kind]).itemsize:
            raise ImageError(f"{path.name}: variable {name} of type {kind} and shape {shape} is malformed")
        start = reader.skip(size)
        variables[name] = np.frombuffer(reader.data, _TYPES[kind], math.prod(shape), start).reshape(shape)
    for _ in range(reader.number("I")):
        alias, target = reader.string(), reader.string()
        if target in variables:
            variables[alias] = variables[target]
    return Model(spec, variables)
