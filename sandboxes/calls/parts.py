"""Calls about the request's inputs."""

from __future__ import annotations

from typing import Any

import orjson

from hailmesh.hail.buffer import DType
from hailmesh.sandboxes.calls.tensors import MAX_RANK
from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.run import Input
from hailmesh.sandboxes.stopwatch import waiting


def config(context: Context, buffer: int, capacity: int) -> int:
    return context.memory.fill(buffer, capacity, context.unit.config)


def part_count(context: Context) -> int:
    return len(context.run.inputs)


def part_info(context: Context, index: int, buffer: int, capacity: int) -> int:
    entry = _input(context, index)
    part = entry.part
    info: dict[str, Any] = {
        "name": part.name,
        "type": part.type,
        "size": entry.size,
        "streamed": part.streamed,
    }
    if part.dtype is not None and part.shape is not None:
        info |= {"dtype": part.dtype, "shape": list(part.shape)}
    return context.memory.fill(buffer, capacity, orjson.dumps(info))


def part_map(context: Context, index: int) -> int:
    entry = _input(context, index)
    part = entry.part
    nbytes = part.room if part.streamed else part.size
    if nbytes == 0:
        raise CallError(Errno.ENOMSG, f"part {part.name!r} is empty")
    if entry.window == 0:
        entry.view = context.unit.arena.view(part.offset, nbytes, DType.U8, (nbytes,))
        entry.window = context.map(entry.view, write=False)
    return entry.window


def part_wait(context: Context, index: int, offset: int) -> int:
    entry = _input(context, index)
    with waiting(context.run.stages, "client"):
        return context.run.wait_for_more(entry, offset)


def part_tensor(context: Context, index: int) -> int:
    entry = _input(context, index)
    part = entry.part
    if not entry.ended:
        raise CallError(Errno.EBUSY, f"part {part.name!r} is still growing; wait for its end first")
    if part.shape is not None and len(part.shape) > MAX_RANK:
        raise CallError(Errno.EINVAL, f"part {part.name!r} has more than {MAX_RANK} dimensions")
    if part.dtype is None or part.shape is None:
        view = context.unit.arena.view(part.offset, entry.size, DType.U8, (entry.size,))
    else:
        view = context.unit.arena.view(part.offset, entry.size, DType(part.dtype), part.shape)
    context.check_tensors()
    return context.handles.add(Tensor(view, None))


def _input(context: Context, index: int) -> Input:
    inputs = context.run.inputs
    if index >= len(inputs):
        raise CallError(Errno.EINVAL, f"there is no part {index}; the request has {len(inputs)}")
    return inputs[index]
