"""Our own small WASI preview 1: what C runtimes need to start, print, and draw random numbers.

No files, no network, no environment, no real clock finer than a second, no sleeping: wasmtime's own could
not hide the clock, slept 3 s in poll_oneoff under a 50 ms deadline, and wrote 100 MiB to a log. Numbers and
layouts: WASI preview 1, wasi_snapshot_preview1.witx. A call returns 0; the bridge makes an errno of what it
raises. Of 64-bit arguments only the low word arrives, which nothing here needs more of.
"""

from __future__ import annotations

import struct
import time

from hailmesh.hail.errors import UnitFault
from hailmesh.sandboxes.context import Context, Stop
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.logs import INFO, WARNING

MODULE = "wasi_snapshot_preview1"

MAX_RANDOM = 1 << 20
MAX_PIECES = 1024
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_FDSTAT = struct.Struct("<BxHxxxxQQ")
_STREAMS = {1: INFO, 2: WARNING}
_REALTIME, _MONOTONIC = 0, 1
_SECOND = 1_000_000_000
_CHARACTER_DEVICE, _APPEND = 2, 1
_RIGHT_TO_WRITE = 1 << 6


def nothing_sizes(context: Context, count: int, size: int) -> int:
    """args_sizes_get, environ_sizes_get: there are none."""
    context.memory.write(count, bytes(4))
    context.memory.write(size, bytes(4))
    return 0


def nothing(context: Context, pointers: int, buffer: int) -> int:
    """args_get, environ_get: nothing to write."""
    return 0


def clock_res_get(context: Context, clock: int, resolution: int) -> int:
    context.memory.write(resolution, _U64.pack(_resolution(clock)))
    return 0


def clock_time_get(context: Context, clock: int, precision: int, result: int) -> int:
    resolution = _resolution(clock)
    now = time.monotonic_ns() if clock == _MONOTONIC else time.time_ns()
    context.memory.write(result, _U64.pack(now // resolution * resolution))
    return 0


def _resolution(clock: int) -> int:
    if clock not in (_REALTIME, _MONOTONIC):
        raise CallError(Errno.EINVAL, f"there is no clock {clock} here")
    return 1 if clock == _MONOTONIC else _SECOND


def random_get(context: Context, buffer: int, length: int) -> int:
    if length > MAX_RANDOM:
        raise CallError(Errno.EINVAL, f"at most {MAX_RANDOM} random bytes a call, not {length}")
    context.memory.write(buffer, context.run.random(length))
    return 0


def fd_write(context: Context, fd: int, pieces: int, count: int, written: int) -> int:
    """To standard output and error, which are the unit's log. Once that is full, nothing is copied."""
    level = _STREAMS.get(fd)
    if level is None:
        raise _no_file(fd)
    vector = context.memory.integers(pieces, 2 * count, 2 * MAX_PIECES)
    total = 0
    for pointer, nbytes in zip(vector[::2], vector[1::2], strict=True):
        pointer, nbytes = pointer & 0xFFFFFFFF, nbytes & 0xFFFFFFFF
        context.memory.check(pointer, nbytes)
        total += nbytes
        if not context.run.logs.full:
            room = context.unit.limits.log_bytes + 1
            piece = context.memory.read(pointer, min(nbytes, room))
            context.run.log(context.run.logs.output(level, piece))
    context.memory.write(written, _U32.pack(total & 0xFFFFFFFF))
    return 0


def fd_fdstat_get(context: Context, fd: int, result: int) -> int:
    """Standard output and error look like a terminal, so that C libraries write line by line."""
    if fd not in _STREAMS:
        raise _no_file(fd)
    context.memory.write(result, _FDSTAT.pack(_CHARACTER_DEVICE, _APPEND, _RIGHT_TO_WRITE, 0))
    return 0


def no_file(context: Context, fd: int, *_: int) -> int:
    """All other calls on descriptors."""
    raise _no_file(fd)


def _no_file(fd: int) -> CallError:
    return CallError(Errno.EBADF, f"descriptor {fd} is not open; units have no files")


def poll_oneoff(context: Context, *_: int) -> int:
    raise CallError(Errno.ENOSYS, "a unit can't sleep or poll")


def sched_yield(context: Context) -> int:
    return 0


def proc_exit(context: Context, code: int) -> int:
    raise Stop(UnitFault(f"unit {context.unit.name} called exit({code}) instead of returning"))
