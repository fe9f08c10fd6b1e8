"""wasmtime's own Python bindings, used the way their documentation shows: what our sandboxes are held
against."""

from __future__ import annotations

import ctypes
from typing import Any

from wasmtime import FuncType, Linker, Module, Store, ValType

from hailmesh.sandboxes import engine

_I32 = ValType.i32
_FAR = 1 << 40


class Opened:
    """A sandbox behind the bindings."""

    def __init__(self, store: Store, exports: Any) -> None:
        self._store = store
        self._handle = exports["mesh_handle"]
        self._memory = exports["memory"]
        exports["_initialize"](store)

    def handle(self) -> None:
        """One request."""
        self._handle(self._store)

    @property
    def address(self) -> int:
        """The host's address of its memory."""
        pointer = ctypes.cast(self._memory.data_ptr(self._store), ctypes.c_void_p)
        assert pointer.value, "a memory has an address"
        return pointer.value

    def close(self) -> None:
        self._store.close()


class Bindings:
    """A guest of support.guests behind the bindings, on an engine set up like ours."""

    def __init__(self, wasm: bytes) -> None:
        self._engine = engine.new()
        self._module = Module(self._engine, wasm)
        self._linker = Linker(self._engine)
        for name, parameters, function in (
            ("reply", 2, lambda pointer, length: 0),
            ("part_count", 0, lambda: 0),
        ):
            kind = FuncType([_I32()] * parameters, [_I32()])
            self._linker.define_func("mesh_v1", name, kind, function)

    def open(self) -> Opened:
        """A fresh sandbox."""
        store = Store(self._engine)
        store.set_epoch_deadline(_FAR)
        return Opened(store, self._linker.instantiate(store, self._module).exports(store))

    def request(self) -> None:
        """A whole request in a sandbox of its own."""
        opened = self.open()
        opened.handle()
        opened.close()
