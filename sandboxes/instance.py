"""One sandbox: a fresh instance of a unit's module, which nothing outlives but its reply."""

from __future__ import annotations

import ctypes
import re
import time
from typing import Any

from hailmesh.hail.errors import ImageError, MeshError, UnitFault
from hailmesh.sandboxes import capi
from hailmesh.sandboxes.calls.sequences import Sequence
from hailmesh.sandboxes.capi import api
from hailmesh.sandboxes.context import Context, Stop, current
from hailmesh.sandboxes.errno import refusal
from hailmesh.sandboxes.guest import Memory
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.unit import Unit

ABI = 1
_TABLE_ELEMENTS = 100_000
_NEAR_LIMIT = 1 << 20
_CAUSE = re.compile(r"wasm trap: (.+)")
_PLACE = re.compile(r"0: +0x[0-9a-f]+ - (?:[^!\n]*!)?(.+)")


class Instance:
    """Use as a context manager. Belongs to one thread at a time. A session-lived unit's instance answers
    several runs, any other exactly one."""

    def __init__(self, unit: Unit, module: LinkedModule) -> None:
        """UnitFault if the module can't be instantiated within the unit's limits."""
        self.unit = unit
        self._module = module
        self._api = api()
        self._began: float | None = time.perf_counter()
        self._initialized = False
        self.broken = False
        """Whether the guest was stopped in the middle of something, so that it can't go on."""
        self._context = Context(unit)
        self._trap = capi.Pointer()
        self._raw = (ctypes.c_int32 * capi.RAW_WORDS)()
        self._raw_at, self._trap_at = ctypes.addressof(self._raw), ctypes.addressof(self._trap)
        self._store: int | None = self._api.store_new(module.engine_pointer, None, None)
        self._pointer = self._api.store_context(self._store)
        try:
            self._instantiate()
        except BaseException:
            self.close()
            raise

    def _instantiate(self) -> None:
        calls = self._api
        calls.store_limiter(self._store, self.unit.limits.memory, _TABLE_ELEMENTS, 1, 8, 1)
        calls.store_epoch_callback(self._store, next_epoch, None, None)
        calls.set_epoch_deadline(self._pointer, 1)
        self._instance = capi.Instance()
        error = calls.instantiate(
            self._module.pre_pointer,
            self._pointer,
            ctypes.addressof(self._instance),
            self._trap_at,
        )
        if error or self._trap.value:
            raise UnitFault(f"unit {self.unit.name} can't be instantiated: {self._what_happened(error)}")
        self._memory = self._export(b"memory", capi.EXTERN_MEMORY)
        where, pointer = _value(self._memory), self._pointer
        base = calls.memory_data(pointer, where)
        self._context.attach(Memory(base, lambda: calls.memory_size(pointer, where)), self._reserved)

    def _export(self, name: bytes, kind: int = capi.EXTERN_FUNC) -> Any:
        found = capi.Extern()
        there = self._api.export_get(
            self._pointer, ctypes.addressof(self._instance), name, len(name), ctypes.addressof(found)
        )
        if not there or found.kind != kind:
            raise ImageError(f"unit {self.unit.name} doesn't export {name.decode()}; see mesh_v1.h")
        return found

    def check_abi(self, run: Run) -> None:
        """ImageError unless the module speaks this ABI. Runs the guest's initialisation."""
        self._start(run)
        try:
            self._begin()
            version = self._call(self._export(b"mesh_abi"))
        finally:
            self._end()
        if version != ABI:
            raise ImageError(f"unit {self.unit.name} speaks version {version} of the unit ABI, not {ABI}")

    def handle(self, run: Run) -> None:
        """Answers one request: afterwards `run.reply` and `run.reply_tensors` are the answer, and
        `run.stages` tells where the time went. Raises the MeshError that describes why there is none; see
        `broken`."""
        self._start(run)
        try:
            self._begin()
            result = self._call(self._export(b"mesh_handle"))
            if result != 0:
                said = (run.reply or b"").decode("utf-8", "replace").strip()
                raise refusal(result, said, run.failure)
            if run.reply is None:
                raise UnitFault(f"unit {self.unit.name} returned without a reply")
        except BaseException:
            run.drop_tensors()
            raise
        finally:
            self._end()

    def _start(self, run: Run) -> None:
        self._began = self._began or time.perf_counter()
        self._context.begin(run)
        current.context = self._context
        # The epoch first: an increment between the two would be lost.
        self._api.set_epoch_deadline(self._pointer, 1)
        epochs = self._module.epochs
        epochs.watch(self, run.token)
        run.interrupt = epochs.poke
        if run.token.cancelled:
            # By somebody who saw nothing to interrupt yet.
            epochs.poke()

    def _begin(self) -> None:
        if not self._initialized:
            self._call(self._export(b"_initialize"))
            self._initialized = True

    def _end(self) -> None:
        """What the run had of the node's goes back, so that nothing touches it any more."""
        context, run = self._context, self._context.run
        self._module.epochs.unwatch(self)
        run.interrupt = None
        run.log(run.logs.rest())
        for entry in run.inputs:
            if entry.window:
                context.take_back(entry.view, entry.window)
        for handle, tensor in context.handles.of(Tensor):
            if tensor.lease is None:
                if tensor.window:
                    context.take_back(tensor.buffer, tensor.window)
                context.handles.remove(handle)
        if run.job.session:
            context.seal()
        current.context = None
        stages = run.stages
        elapsed = (time.perf_counter() - (self._began or 0.0)) * 1e6
        stages.bridge = max(0.0, context.host_time * 1e6 - stages.outside)
        stages.sandbox = elapsed - stages.bridge - stages.outside
        self._began = None

    def _call(self, function: Any, argument: int = 0) -> int:
        """Runs an exported function of one i32 or none; its i32 result, or what was there before if it has
        none."""
        self._raw[0] = argument
        self._trap.value = None
        error = self._api.call(
            self._pointer,
            _value(function),
            self._raw_at,
            1,
            self._trap_at,
        )
        if error or self._trap.value:
            self.broken = True
            what = self._what_happened(error)
            fatal = self._context.run.fatal
            if fatal is not None:
                raise fatal
            raise UnitFault(f"unit {self.unit.name} {what}{self._about_memory()}")
        return self._raw[0]

    def _reserved(self, nbytes: int) -> int:
        """The guest's mesh_reserve, from inside a host call."""
        try:
            return self._call(self._export(b"mesh_reserve"), nbytes) & 0xFFFFFFFF
        except MeshError as error:
            raise Stop(error) from error

    def _what_happened(self, error: int | None) -> str:
        if error:
            text = self._api.take_error(error)
        else:
            text = self._api.take_trap(self._trap.value or 0)
            self._trap.value = None
        cause, place = _CAUSE.search(text), _PLACE.search(text)
        if cause is None:
            return text.strip().splitlines()[-1].strip()
        return f"trapped: {cause[1]}" + (f", in {place[1]}" if place is not None else "")

    def _about_memory(self) -> str:
        limit, size = self.unit.limits.memory, self._context.memory.size
        if size + _NEAR_LIMIT <= limit:
            return ""
        return f"; it had used {size} of its {limit} bytes of memory"

    def give_back(self) -> None:
        """Returns what the instance holds of the arena and the engines, so that others can have it at once.
        It can't run any more, which is why its windows may stay until `close`. Idempotent."""
        context = self._context
        for handle, sequence in context.handles.of(Sequence):
            context.handles.remove(handle)
            sequence.close()
        for handle, tensor in context.handles.of(Tensor):
            context.handles.remove(handle)
            tensor.let_go()

    def close(self) -> None:
        """Gives everything back, and ends the guest. Windows before the store: memory that is handed on with
        one in it shows the arena to its next owner. Idempotent."""
        if self._store is None:
            return
        self._context.detach()
        self._api.store_delete(self._store)
        self._store = None
        self.give_back()

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _value(extern: Any) -> int:
    """The address of the func or memory inside an extern."""
    return ctypes.addressof(extern) + capi.EXTERN_VALUE


def _next_epoch(context: int, data: int, ticks: int, kind: int) -> int:
    """Called in a running guest whose epoch has ended: an error ends the guest, or it goes on until the next
    increment."""
    running = current.context
    try:
        if running is not None:
            running.run.token.check()
    except MeshError as error:
        assert running is not None
        running.run.fatal = error.with_traceback(None)
        ended: int = api().error_new(b"stopped by the host")
        return ended
    ctypes.c_uint64.from_address(ticks).value = 1
    ctypes.c_uint8.from_address(kind).value = 0
    return 0


next_epoch = capi.EPOCH_CALL(_next_epoch)
