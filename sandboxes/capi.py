"""The wasmtime C API's functions that lie on the path of a request, bound without conversions.

wasmtime-py's own wrappers rebuild types and values at each call (40 to 140 µs). Here pointers are plain
integers, and whoever calls keeps the structs. Names and signatures: wasmtime's headers wasmtime.h, store.h,
linker.h, instance.h, func.h, memory.h, trap.h, error.h.

Calls of a few microseconds keep the GIL, since getting it back from a busy thread takes up to a switch
interval; what may run long (guest code, dropping a store) gives it up.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from wasmtime import _ffi as ffi

Pointer = ctypes.c_void_p

HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_size_t, Pointer, Pointer, Pointer, ctypes.c_size_t)
"""trap * (env, caller, wasmtime_val_raw_t *args_and_results, count); 0: no trap."""

EPOCH_CALL = ctypes.CFUNCTYPE(ctypes.c_size_t, Pointer, Pointer, Pointer, Pointer)
"""error * (context, data, uint64_t *ticks, uint8_t *kind); an error ends the guest."""

RAW_WORDS = 4
"""A wasmtime_val_raw_t is 16 bytes: four words of 32 bits, an i32 in the first, an i64 in the first two."""

Extern = ffi.wasmtime_extern_t
EXTERN_VALUE: int = Extern.of.offset
"""Where in a wasmtime_extern_t the func or memory itself begins."""
EXTERN_FUNC: int = ffi.WASMTIME_EXTERN_FUNC.value
EXTERN_MEMORY: int = ffi.WASMTIME_EXTERN_MEMORY.value
Instance = ffi.wasmtime_instance_t


class Api:
    """The bound functions; one object for the process, see `api`."""

    def __init__(self) -> None:
        brief = ctypes.PyDLL(str(ffi.filename))
        lengthy = ctypes.CDLL(str(ffi.filename))
        size, i64, u64 = ctypes.c_size_t, ctypes.c_int64, ctypes.c_uint64

        def bind(library: Any, name: str, result: Any, *arguments: Any) -> Any:
            kind = ctypes.PYFUNCTYPE if library is brief else ctypes.CFUNCTYPE
            return kind(result, *arguments)((name, library))

        self.store_new = bind(brief, "wasmtime_store_new", Pointer, Pointer, Pointer, Pointer)
        self.store_context = bind(brief, "wasmtime_store_context", Pointer, Pointer)
        self.store_limiter = bind(brief, "wasmtime_store_limiter", None, Pointer, i64, i64, i64, i64, i64)
        self.store_epoch_callback = bind(
            brief, "wasmtime_store_epoch_deadline_callback", None, Pointer, Pointer, Pointer, Pointer
        )
        self.store_delete = bind(lengthy, "wasmtime_store_delete", None, Pointer)
        self.set_epoch_deadline = bind(brief, "wasmtime_context_set_epoch_deadline", None, Pointer, u64)
        self.increment_epoch = bind(brief, "wasmtime_engine_increment_epoch", None, Pointer)
        self.define_func = bind(
            brief,
            "wasmtime_linker_define_func_unchecked",
            Pointer,
            Pointer,
            ctypes.c_char_p,
            size,
            ctypes.c_char_p,
            size,
            Pointer,
            HOST_CALL,
            Pointer,
            Pointer,
        )
        self.instantiate = bind(
            brief, "wasmtime_instance_pre_instantiate", Pointer, Pointer, Pointer, Pointer, Pointer
        )
        self.export_get = bind(
            brief,
            "wasmtime_instance_export_get",
            ctypes.c_bool,
            Pointer,
            Pointer,
            ctypes.c_char_p,
            size,
            Pointer,
        )
        self.memory_data = bind(brief, "wasmtime_memory_data", Pointer, Pointer, Pointer)
        self.memory_size = bind(brief, "wasmtime_memory_data_size", size, Pointer, Pointer)
        self.call = bind(
            lengthy, "wasmtime_func_call_unchecked", Pointer, Pointer, Pointer, Pointer, size, Pointer
        )
        self.trap_new = bind(brief, "wasmtime_trap_new", Pointer, ctypes.c_char_p, size)
        self.trap_delete = bind(brief, "wasm_trap_delete", None, Pointer)
        self.error_new = bind(brief, "wasmtime_error_new", Pointer, ctypes.c_char_p)
        self.error_delete = bind(brief, "wasmtime_error_delete", None, Pointer)
        self._trap_message = bind(brief, "wasm_trap_message", None, Pointer, Pointer)
        self._error_message = bind(brief, "wasmtime_error_message", None, Pointer, Pointer)
        self._bytes_delete = bind(brief, "wasm_byte_vec_delete", None, Pointer)

    def take_trap(self, trap: int) -> str:
        """A trap's message, which ends the trap's life."""
        text = self._text(self._trap_message, trap)
        self.trap_delete(trap)
        return text

    def take_error(self, error: int) -> str:
        """An error's message, which ends the error's life."""
        text = self._text(self._error_message, error)
        self.error_delete(error)
        return text

    def _text(self, message: Any, owner: int) -> str:
        vector = ffi.wasm_byte_vec_t()
        message(owner, ctypes.addressof(vector))
        text = ctypes.string_at(vector.data, vector.size).rstrip(b"\0").decode("utf-8", "replace")
        self._bytes_delete(ctypes.addressof(vector))
        return text


@cache
def api() -> Api:
    """The process's own."""
    return Api()


def address(owner: Any) -> int:
    """The C pointer inside one of wasmtime-py's objects (Engine, Linker, FuncType, InstancePre)."""
    value = ctypes.cast(owner.ptr(), Pointer).value
    assert value is not None
    return value
