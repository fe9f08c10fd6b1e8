"""The host-call bridge: every function a guest can import, and how its call reaches ours and returns.

CALLS lists them all: module, name, signature, handler. A signature names each parameter, then the result:
`i` for i32, `I` for i64, `-` for none. Handlers get the instance's Context and the parameters as unsigned
32-bit words; what they return >= 0 is the result, what they raise becomes an errno: negative in mesh_v1,
positive in WASI. Nothing is ever raised through wasmtime, whose Python bindings keep exceptions in one
global for all threads.

Functions are defined once per linker, for all instances of a unit. They find theirs through `current`, since
an instance runs on one thread at a time. Arguments and results lie in an array of 16-byte values on the
caller's stack (wasmtime_val_raw_t); views of it are kept by address, so that a call allocates nothing.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wasmtime import Engine, FuncType, Linker, ValType

from hailmesh.hail.errors import MeshError
from hailmesh.sandboxes import wasi
from hailmesh.sandboxes.calls import answers, graphs, parts, sequences, tensors, text
from hailmesh.sandboxes.capi import HOST_CALL, RAW_WORDS, address, api
from hailmesh.sandboxes.context import Context, Stop, current
from hailmesh.sandboxes.errno import CallError, of_error

_log = logging.getLogger(__name__)
Handler = Callable[..., int]
MESH, WASI = "mesh_v1", wasi.MODULE
_MOST_WORDS = 9 * RAW_WORDS
_MOST_VIEWS = 4096
_Words = ctypes.c_uint32 * _MOST_WORDS


@dataclass(frozen=True, slots=True)
class Call:
    """`quick`: so short that timing it would cost more than the call itself."""

    module: str
    name: str
    signature: str
    handler: Handler
    quick: bool = False

    @property
    def parameters(self) -> str:
        return self.signature[:-1]

    @property
    def result(self) -> str:
        return self.signature[-1].replace("-", "")


CALLS = (
    Call(MESH, "config", "iii", parts.config),
    Call(MESH, "part_count", "i", parts.part_count, quick=True),
    Call(MESH, "part_info", "iiii", parts.part_info),
    Call(MESH, "part_map", "ii", parts.part_map),
    Call(MESH, "part_wait", "iii", parts.part_wait),
    Call(MESH, "part_tensor", "ii", parts.part_tensor),
    Call(MESH, "tensor_new", "iiii", tensors.tensor_new),
    Call(MESH, "tensor_info", "iii", tensors.tensor_info),
    Call(MESH, "tensor_map", "iii", tensors.tensor_map),
    Call(MESH, "tensor_unmap", "ii", tensors.tensor_unmap),
    Call(MESH, "tensor_drop", "ii", tensors.tensor_drop),
    Call(MESH, "graph", "iii", graphs.graph),
    Call(MESH, "graph_info", "iiii", graphs.graph_info),
    Call(MESH, "graph_run", "iiiiii", graphs.graph_run),
    Call(MESH, "kernel_run", "iiiiiiiii", graphs.kernel_run),
    Call(MESH, "text_encode", "iiiiii", text.text_encode),
    Call(MESH, "text_token", "iiii", text.text_token),
    Call(MESH, "text_decode", "iiiiii", text.text_decode),
    Call(MESH, "seq_open", "iiiii", sequences.seq_open),
    Call(MESH, "seq_bind", "iiiii", sequences.seq_bind),
    Call(MESH, "seq_feed", "iiiii", sequences.seq_feed),
    Call(MESH, "seq_sample", "iiiiii", sequences.seq_sample),
    Call(MESH, "seq_close", "ii", sequences.seq_close),
    Call(MESH, "emit", "iii", answers.emit),
    Call(MESH, "reply", "iii", answers.reply),
    Call(MESH, "reply_tensor", "iiii", answers.reply_tensor),
    Call(MESH, "deadline_us", "I", answers.deadline_us, quick=True),
    Call(MESH, "log", "iiii", answers.log),
    Call(WASI, "args_sizes_get", "iii", wasi.nothing_sizes),
    Call(WASI, "args_get", "iii", wasi.nothing),
    Call(WASI, "environ_sizes_get", "iii", wasi.nothing_sizes),
    Call(WASI, "environ_get", "iii", wasi.nothing),
    Call(WASI, "clock_res_get", "iii", wasi.clock_res_get),
    Call(WASI, "clock_time_get", "iIii", wasi.clock_time_get, quick=True),
    Call(WASI, "random_get", "iii", wasi.random_get),
    Call(WASI, "fd_write", "iiiii", wasi.fd_write),
    Call(WASI, "fd_fdstat_get", "iii", wasi.fd_fdstat_get),
    Call(WASI, "fd_fdstat_set_flags", "iii", wasi.no_file),
    Call(WASI, "fd_close", "ii", wasi.no_file),
    Call(WASI, "fd_read", "iiiii", wasi.no_file),
    Call(WASI, "fd_seek", "iIiii", wasi.no_file),
    Call(WASI, "fd_tell", "iii", wasi.no_file),
    Call(WASI, "fd_filestat_get", "iii", wasi.no_file),
    Call(WASI, "fd_prestat_get", "iii", wasi.no_file),
    Call(WASI, "fd_prestat_dir_name", "iiii", wasi.no_file),
    Call(WASI, "poll_oneoff", "iiiii", wasi.poll_oneoff),
    Call(WASI, "sched_yield", "i", wasi.sched_yield),
    Call(WASI, "proc_exit", "i-", wasi.proc_exit),
)

_SPREAD: tuple[Callable[[Handler, Context, Any], int], ...] = (
    lambda f, c, w: f(c),
    lambda f, c, w: f(c, w[0]),
    lambda f, c, w: f(c, w[0], w[4]),
    lambda f, c, w: f(c, w[0], w[4], w[8]),
    lambda f, c, w: f(c, w[0], w[4], w[8], w[12]),
    lambda f, c, w: f(c, w[0], w[4], w[8], w[12], w[16]),
    lambda f, c, w: f(c, w[0], w[4], w[8], w[12], w[16], w[20]),
    lambda f, c, w: f(c, w[0], w[4], w[8], w[12], w[16], w[20], w[24]),
    lambda f, c, w: f(c, w[0], w[4], w[8], w[12], w[16], w[20], w[24], w[28]),
)
"""By number of parameters. Spelt out: a slice or a loop over a ctypes array costs as much as the call."""

_views: dict[int, Any] = {}


def _view(args: int) -> Any:
    """The words at an address of the caller's stack, as an array that is kept: deep stacks aside, calls come
    from few addresses."""
    if len(_views) >= _MOST_VIEWS:
        _views.clear()
    words = _views[args] = _Words.from_address(args)
    return words


def _trampoline(call: Call) -> Any:
    """The C function for a call. It returns 0, or a trap that ends the guest."""
    handler = call.handler
    spread = _SPREAD[len(call.parameters)]
    sign = -1 if call.module == MESH else 1
    wide = call.result == "I"
    views, clock = _views, time.perf_counter

    def quick(env: int, caller: int, args: int, count: int) -> int:
        context = current.context
        assert context is not None, "guests run inside Instance.run"
        try:
            context.calls_left -= 1
            if context.calls_left < 0:
                raise context.out_of_calls()
            words = views.get(args) or _view(args)
            result = spread(handler, context, words)
            words[0] = result
            if wide:
                words[1] = result >> 32
        except BaseException as error:
            return _failed(context, error, args, sign)
        return 0

    def timed(env: int, caller: int, args: int, count: int) -> int:
        context = current.context
        assert context is not None, "guests run inside Instance.run"
        began = clock()
        trap = quick(env, caller, args, count)
        context.host_time += clock() - began
        return trap

    return HOST_CALL(quick if call.quick else timed)


def _failed(context: Context, error: BaseException, args: int, sign: int) -> int:
    """An errno for the guest, or the trap that stops it."""
    if isinstance(error, Stop):
        context.run.fatal = error.cause
        message = b"stopped by the host"
        trap: int = api().trap_new(message, len(message))
        return trap
    if not isinstance(error, MeshError | CallError):
        _log.error("a host call failed in a way nobody foresaw", exc_info=error)
    # Without its frames, which would keep whatever they hold alive for as long as the run.
    context.run.failure = error.with_traceback(None)
    _view(args)[0] = sign * of_error(error)
    return 0


class Bridge:
    """The functions of one linker. Must live as long as it, and whatever was made from it."""

    def __init__(self, engine: Engine, linker: Linker) -> None:
        self._functions = []
        for call in CALLS:
            # Types are made for this engine alone: one that met another engine would abort the process.
            kind = FuncType(_types(call.parameters), _types(call.result))
            function = _trampoline(call)
            module, name = call.module.encode(), call.name.encode()
            error = api().define_func(
                address(linker), module, len(module), name, len(name), address(kind), function, None, None
            )
            assert not error, "no name is defined twice"
            self._functions.append(function)


def _types(letters: str) -> list[ValType]:
    return [ValType.i32() if letter == "i" else ValType.i64() for letter in letters]
