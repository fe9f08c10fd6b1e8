"""Tensors on the wire: the Open Inference Protocol's names of element types, and bytes out of the arena."""

from __future__ import annotations

import ctypes

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import UsageError

NAMES: dict[DType, str] = {
    DType.F16: "FP16",
    DType.F32: "FP32",
    DType.F64: "FP64",
    DType.U8: "UINT8",
    DType.U16: "UINT16",
    DType.U32: "UINT32",
    DType.U64: "UINT64",
    DType.I8: "INT8",
    DType.I16: "INT16",
    DType.I32: "INT32",
    DType.I64: "INT64",
    DType.BOOL: "BOOL",
}
BYTES = "BYTES"
"""Elements of any length, each with its length before it as a little-endian u32."""

_DTYPES = {name: dtype for dtype, name in NAMES.items()}


def datatype(dtype: DType) -> str:
    """The protocol's name."""
    return NAMES[dtype]


def dtype_of(name: str, tensor: str) -> DType:
    """The element type of that name; UsageError, naming the tensor, if there is none."""
    found = _DTYPES.get(name)
    if found is None:
        raise UsageError(f"{tensor}: datatype: expected one of {', '.join(_DTYPES)}, found '{name}'")
    return found


def raw_bytes(buffer: Buffer) -> bytes:
    """A copy of the buffer's content: sockets read later than its lease may live."""
    return ctypes.string_at(buffer.address, buffer.nbytes)
