"""Calls by which a unit speaks: chunks, the reply, the log; and the time it has left."""

from __future__ import annotations

from time import monotonic_ns

from hailmesh.sandboxes.calls.graphs import MAX_NAME
from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.logs import LAST_LEVEL, MAX_LINE
from hailmesh.sandboxes.run import EMIT_WINDOW
from hailmesh.sandboxes.stopwatch import waiting

MAX_REPLY_TENSORS = 64


def emit(context: Context, chunk: int, length: int) -> int:
    if length > EMIT_WINDOW:
        raise CallError(Errno.E2BIG, f"a chunk has at most {EMIT_WINDOW} bytes, not {length}")
    data = context.memory.read(chunk, length)
    with waiting(context.run.stages, "client"):
        context.run.emit(data)
    return 0


def reply(context: Context, text: int, length: int) -> int:
    limit = context.unit.limits.reply_bytes
    if length > limit:
        raise CallError(Errno.E2BIG, f"a reply of this unit has at most {limit} bytes, not {length}")
    context.run.reply = context.memory.read(text, length)
    return 0


def reply_tensor(context: Context, name: int, length: int, handle: int) -> int:
    run = context.run
    wanted = context.memory.text(name, length, MAX_NAME)
    tensor = context.handles.get(handle, Tensor)
    if wanted not in run.reply_tensors and len(run.reply_tensors) >= MAX_REPLY_TENSORS:
        raise CallError(Errno.E2BIG, f"a reply has at most {MAX_REPLY_TENSORS} tensors")
    if tensor.lease is None:
        tensor = _copied(context, tensor)
    else:
        tensor.freeze()
        tensor.hold()
    replaced = run.reply_tensors.pop(wanted, None)
    if replaced is not None:
        replaced.let_go()
    run.reply_tensors[wanted] = tensor
    return 0


def _copied(context: Context, part: Tensor) -> Tensor:
    """A part of the request, which the node may take back before it has read the reply."""
    lease = context.lease(part.buffer.dtype, part.buffer.shape)
    lease.buffer.numpy()[...] = part.buffer.numpy()
    lease.freeze()
    return Tensor(lease.buffer, lease)


def deadline_us(context: Context) -> int:
    return (context.deadline_ns - monotonic_ns()) // 1000


def log(context: Context, level: int, text: int, length: int) -> int:
    if level > LAST_LEVEL:
        raise CallError(Errno.EINVAL, f"a log level is 0 to {LAST_LEVEL}, not {level}")
    run = context.run
    if not run.logs.full:
        run.log(run.logs.entry(level, context.memory.read(text, min(length, MAX_LINE))))
    return 0
