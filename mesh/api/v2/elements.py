"""Elements of tensors in JSON and BYTES."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from hailmesh.hail.errors import UsageError
from hailmesh.mesh.api.body import writable
from hailmesh.mesh.api.tensors import BYTES
from hailmesh.mesh.api.v2.request import TensorIn
from hailmesh.router.request import Input

LENGTH = struct.Struct("<I")


def fill_from_json(entry: Input, tensor: TensorIn) -> None:
    """Writes JSON numbers, nested or flat, into the tensor's lease. UsageError if they are no numbers, too
    many or too few, or don't fit the type."""
    assert tensor.dtype is not None
    wanted = tensor.dtype.numpy
    try:
        given = np.array(tensor.data)
    except ValueError:
        raise UsageError(f"{tensor.name}: data is not a regular list of numbers") from None
    if given.size == 0:
        given = given.astype(wanted)
    if given.dtype.kind not in "biuf" or (given.dtype.kind == "f" and wanted.kind != "f"):
        raise UsageError(f"{tensor.name}: data doesn't hold {wanted.name} numbers")
    if given.size * wanted.itemsize != entry.size:
        raise UsageError(
            f"{tensor.name}: shape {list(tensor.shape)} has {entry.size // wanted.itemsize} elements, data"
            f" has {given.size}"
        )
    if wanted.kind in "iu" and given.size:
        limits = np.iinfo(wanted.name)
        if given.min() < limits.min or given.max() > limits.max:
            raise UsageError(f"{tensor.name}: data has numbers that {wanted.name} can't hold")
    with np.errstate(over="ignore"):
        converted = given.astype(wanted).reshape(-1)
    writable(entry.lease)[: entry.size] = converted.view(np.uint8).data


def one_element(tensor: TensorIn, data: Any) -> bytes:
    """The only element of a BYTES tensor: `data` is the protocol's length and bytes, or JSON's list of one
    string."""
    if isinstance(data, bytes):
        if len(data) < LENGTH.size or LENGTH.unpack_from(data)[0] != len(data) - LENGTH.size:
            raise UsageError(
                f"{tensor.name}: expected one {BYTES} element: its length (little-endian u32), then its bytes"
            )
        return data[LENGTH.size :]
    while isinstance(data, list) and len(data) == 1:
        data = data[0]
    if not isinstance(data, str):
        raise UsageError(f"{tensor.name}: expected a list of one string")
    return data.encode()


def bytes_element(value: bytes) -> bytes:
    """One BYTES element in the protocol's raw form."""
    return LENGTH.pack(len(value)) + value
