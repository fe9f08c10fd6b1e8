"""A unit's compiled module, linked with the bridge and ready to be instantiated."""

from __future__ import annotations

from wasmtime import Linker, Module, WasmtimeError

from hailmesh.hail.errors import ImageError
from hailmesh.sandboxes import engine
from hailmesh.sandboxes.bridge import Bridge
from hailmesh.sandboxes.capi import address, api
from hailmesh.sandboxes.epochs import Epochs


class LinkedModule:
    """Shared by all instances of a unit; has an engine of its own, so that interrupting this unit's guests
    disturbs no other's."""

    def __init__(self, source: int | bytes) -> None:
        """From a descriptor of native code that this machine compiled (see aot.py), or, for tests and
        tools, from wasm. ImageError if it was made for another machine, wasmtime or engine."""
        self._engine = engine.new()
        try:
            if isinstance(source, int):
                self._module = Module.deserialize_file(self._engine, f"/proc/self/fd/{source}")
            else:
                self._module = Module(self._engine, source)
            self._linker = Linker(self._engine)
            self._bridge = Bridge(self._engine, self._linker)
            self._pre = self._linker.instantiate_pre(self._module)
        except WasmtimeError as error:
            raise ImageError(f"the unit's module can't be used here: {one_line(error)}") from error
        self.engine_pointer = address(self._engine)
        self.pre_pointer = address(self._pre)
        self.epochs = Epochs(lambda: api().increment_epoch(self.engine_pointer))


def one_line(error: BaseException) -> str:
    """wasmtime's message, and the innermost of its causes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0]}: {lines[-1]}" if len(lines) > 1 else lines[0]
