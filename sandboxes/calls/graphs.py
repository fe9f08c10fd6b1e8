"""Calls that compute: the unit's own graphs, and named kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import orjson

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.lease import Lease
from hailmesh.kernels.executor import Allocate
from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.stopwatch import device_time
from hailmesh.sandboxes.unit import Graph

MAX_NAME = 256
MAX_ARGS = 64 << 10
MAX_TENSORS = 256
"""Inputs, or outputs, of one run."""

_NEW, _UNWANTED = 0, -1

Compute = Callable[
    [Sequence[Buffer], Sequence["Buffer | None"], Allocate, Sequence[bool]], "list[Buffer | None]"
]


def graph(context: Context, name: int, length: int) -> int:
    wanted = context.memory.text(name, length, MAX_NAME)
    found = context.unit.graphs.get(wanted)
    if found is None:
        there = ", ".join(context.unit.graphs) or "none"
        raise CallError(Errno.ENOENT, f"the image has no graph {wanted!r}; it has {there}")
    known = next((handle for handle, entry in context.handles.of(Graph) if entry is found), 0)
    return known or context.handles.add(found)


def graph_info(context: Context, handle: int, buffer: int, capacity: int) -> int:
    return context.memory.fill(buffer, capacity, context.handles.get(handle, Graph).info)


def graph_run(context: Context, handle: int, given: int, n_in: int, out: int, n_out: int) -> int:
    entry = context.handles.get(handle, Graph)
    executor, run = entry.executor, context.run
    if executor is None:
        raise CallError(Errno.EINVAL, f"graph {entry.name!r} is a sequence; open it with seq_open")

    def compute(
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
    ) -> list[Buffer | None]:
        return executor.run(inputs, outputs, allocate, wanted, run.token, run.job.level)

    return _compute(context, compute, given, n_in, out, n_out)


def kernel_run(
    context: Context,
    name: int,
    length: int,
    args: int,
    args_length: int,
    given: int,
    n_in: int,
    out: int,
    n_out: int,
) -> int:
    wanted = context.memory.text(name, length, MAX_NAME)
    kernel, run = context.unit.kernels.get(wanted), context.run
    if kernel is None:
        there = ", ".join(context.unit.kernels) or "none"
        raise CallError(Errno.EACCES, f"kernel {wanted!r} isn't granted to this unit; granted: {there}")
    arguments = _arguments(context.memory.text(args, args_length, MAX_ARGS))

    def compute(
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
    ) -> list[Buffer | None]:
        return kernel.run(arguments, inputs, outputs, allocate, wanted, run.token, run.job.level)

    return _compute(context, compute, given, n_in, out, n_out)


def _arguments(text: str) -> dict[str, object]:
    try:
        parsed = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError as error:
        raise CallError(Errno.EINVAL, f"a kernel's arguments are JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise CallError(Errno.EINVAL, "a kernel's arguments are a JSON object")
    return parsed


def _compute(context: Context, compute: Compute, given: int, n_in: int, out: int, n_out: int) -> int:
    """Handles in, handles out, around one run."""
    memory, handles = context.memory, context.handles
    inputs = inputs_of(context, given, n_in)
    asked = memory.integers(out, n_out, MAX_TENSORS)
    outputs = [_output(context, handle) for handle in asked]
    filled = [handle for handle in asked if handle > 0]
    if len(set(filled)) < len(filled):
        raise CallError(Errno.EINVAL, "one tensor can't be several outputs")
    leases: dict[int, Lease] = {}

    def allocate(dtype: DType, shape: tuple[int, ...]) -> Buffer:
        lease = context.lease(dtype, shape)
        leases[lease.buffer.offset] = lease
        return lease.buffer

    try:
        with device_time(context.run.stages):
            results = compute(
                [tensor.buffer for tensor in inputs],
                outputs,
                allocate,
                [handle != _UNWANTED for handle in asked],
            )
        answer = list(asked)
        for index, (handle, result) in enumerate(zip(asked, results, strict=True)):
            if handle == _NEW and result is not None:
                # The executor may have narrowed the shape: its buffer counts, not the lease's.
                answer[index] = handles.add(Tensor(result, leases.pop(result.offset)))
    finally:
        for lease in leases.values():
            lease.release()
    memory.write(out, struct.pack(f"<{n_out}i", *answer))
    return 0


def inputs_of(context: Context, pointer: int, count: int) -> list[Tensor]:
    """An array of handles as tensors to read; they freeze here."""
    tensors = [
        context.handles.get(handle, Tensor) for handle in context.memory.integers(pointer, count, MAX_TENSORS)
    ]
    for tensor in tensors:
        tensor.freeze()
    return tensors


def _output(context: Context, handle: int) -> Buffer | None:
    if handle in (_NEW, _UNWANTED):
        return None
    tensor = context.handles.get(handle, Tensor)
    if tensor.frozen:
        raise CallError(Errno.EROFS, f"tensor {handle} is frozen and can't be an output")
    return tensor.buffer
