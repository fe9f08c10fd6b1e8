"""Calls about tensors, by handle."""

from __future__ import annotations

import struct

from hailmesh.hail.buffer import DType
from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.handles import Tensor

MAX_RANK = 8
_READ, _WRITE = 0, 1
_INFO = struct.Struct("<iiI8i")
"""mesh_tensor_info_t."""
_NO_DIMS = (0,) * MAX_RANK
_DTYPES = {int(dtype): dtype for dtype in DType}


def tensor_new(context: Context, dtype: int, rank: int, dims: int) -> int:
    kind = _DTYPES.get(dtype)
    if kind is None:
        raise CallError(Errno.EINVAL, f"{dtype} is no element type; see enum mesh_dtype")
    if rank > MAX_RANK:
        raise CallError(Errno.EINVAL, f"a tensor has at most {MAX_RANK} dimensions, not {rank}")
    shape = context.memory.integers(dims, rank, MAX_RANK)
    if min(shape, default=0) < 0:
        raise CallError(Errno.EINVAL, f"a dimension is 0 or more; got {list(shape)}")
    return context.handles.add(Tensor((lease := context.lease(kind, shape)).buffer, lease))


def tensor_info(context: Context, handle: int, info: int) -> int:
    buffer = context.handles.get(handle, Tensor).buffer
    shape = buffer.shape
    dims = (*shape, *_NO_DIMS[len(shape) :])
    context.memory.write(info, _INFO.pack(buffer.dtype, len(shape), buffer.nbytes, *dims))
    return 0


def tensor_map(context: Context, handle: int, mode: int) -> int:
    tensor = context.handles.get(handle, Tensor)
    if mode not in (_READ, _WRITE):
        raise CallError(Errno.EINVAL, f"a tensor is mapped to read (0) or to write (1), not {mode}")
    write = mode == _WRITE
    if write and tensor.frozen:
        raise CallError(Errno.EROFS, f"tensor {handle} is frozen: it was read, or is an input of the request")
    if tensor.buffer.nbytes == 0:
        raise CallError(Errno.ENOMSG, f"tensor {handle} is empty")
    if not write:
        tensor.freeze()
    if tensor.window == 0:
        tensor.window = context.map(tensor.buffer, write=write)
        tensor.writable = write
    return tensor.window


def tensor_unmap(context: Context, handle: int) -> int:
    tensor = context.handles.get(handle, Tensor)
    if tensor.window == 0:
        raise CallError(Errno.EINVAL, f"tensor {handle} isn't mapped")
    context.unmap(tensor.window)
    tensor.window = 0
    return 0


def tensor_drop(context: Context, handle: int) -> int:
    tensor = context.handles.get(handle, Tensor)
    if tensor.window:
        tensor_unmap(context, handle)
    context.handles.remove(handle)
    tensor.let_go()
    return 0
