"""What a host call finds behind the guest that made it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import MeshError, UnitFault
from hailmesh.hail.lease import Lease
from hailmesh.hail.report import Stage
from hailmesh.hail.window import Windows, padded
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.guest import Memory
from hailmesh.sandboxes.handles import Handles, Tensor
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.unit import Unit


class Stop(Exception):  # noqa: N818 (no error of the call, but the end of the guest)
    """Raised in a host call to end the guest there and then, because of `cause`."""

    def __init__(self, cause: MeshError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Context:
    """The host's side of one instance: its memory, windows and handles for as long as it lives, and the run
    it is busy with."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.handles = Handles()
        self.calls_left = 0
        """Host calls until the run's limit; negative: none."""
        self.host_time = 0.0
        """Seconds that the run has spent in host calls."""
        self.reserving = False
        """Whether the guest is inside mesh_reserve, where it may not call."""
        self.run: Run
        self.deadline_ns: int
        self.memory: Memory
        self.windows: Windows
        self._reserve: Callable[[int], int] | None = None
        self._idle: list[tuple[int, int]] = []
        """Space (bytes, address) that the guest reserved for parts of earlier runs."""

    def attach(self, memory: Memory, reserve: Callable[[int], int]) -> None:
        """The instance exists: its memory, and its mesh_reserve."""
        self.memory = memory
        self.windows = Windows(self.unit.arena.fd, base=memory.base, limit=lambda: memory.size)
        self._reserve = reserve

    def detach(self) -> None:
        """The instance ends: its windows are unmapped, and it is let go. Idempotent."""
        if self._reserve is not None:
            self.windows.restore_all()
            self._reserve = None

    def begin(self, run: Run) -> None:
        """The calls that follow are this run's."""
        self.run = run
        self.calls_left = self.unit.limits.host_calls
        self.deadline_ns = run.token.deadline_ns
        self.host_time = 0.0

    def out_of_calls(self) -> Exception:
        """Why a call is refused when `calls_left` is negative."""
        if self.reserving:
            return CallError(Errno.EBUSY, "mesh_reserve may not call the host")
        limit = self.unit.limits.host_calls
        return Stop(UnitFault(f"unit {self.unit.name} made more than {limit} host calls in one request"))

    def check_tensors(self) -> None:
        """EMFILE if the instance has as many tensors as it may."""
        limit = self.unit.limits.tensors
        if self.handles.count(Tensor) >= limit:
            raise CallError(Errno.EMFILE, f"a unit may hold at most {limit} tensors at once")

    def lease(self, dtype: DType, shape: tuple[int, ...]) -> Lease:
        """A block for a tensor of this instance; OutOfArena, EMFILE, EOVERFLOW."""
        self.check_tensors()
        nbytes = dtype.itemsize
        for size in shape:
            nbytes *= size
        if nbytes >= 1 << 32:
            raise CallError(Errno.EOVERFLOW, f"a tensor has less than 4 GiB, {shape} takes {nbytes} bytes")
        return self.unit.arena.lease(
            nbytes, owner=self.unit.name, dtype=dtype, shape=shape, stage=Stage.INFER
        )

    def map(self, buffer: Buffer, *, write: bool) -> int:
        """Maps a buffer where the guest itself reserves space for it, and returns the guest's address."""
        nbytes = padded(buffer.nbytes)
        pointer = self._idle_space(nbytes) or self._reserved(nbytes)
        self.windows.map(buffer, self.memory.base + pointer, write)
        return pointer

    def unmap(self, pointer: int) -> None:
        """The space is the guest's again."""
        self.windows.unmap(self.memory.base + pointer)

    def take_back(self, buffer: Buffer, pointer: int) -> None:
        """Unmaps what came with a run that has ended. The guest had no occasion to free the space, so the
        next run's windows get it."""
        self.unmap(pointer)
        self._idle.append((padded(buffer.nbytes), pointer))

    def _idle_space(self, nbytes: int) -> int:
        for index, (size, pointer) in enumerate(self._idle):
            if size == nbytes:
                del self._idle[index]
                return pointer
        return 0

    def _reserved(self, nbytes: int) -> int:
        assert self._reserve is not None, "guests call the host while they live"
        left, self.calls_left, self.reserving = self.calls_left, 0, True
        try:
            pointer = self._reserve(nbytes)
        finally:
            self.calls_left, self.reserving = left, False
        if pointer == 0:
            raise CallError(Errno.ENOMEM, f"mesh_reserve({nbytes}) found no room in the unit's memory")
        return pointer

    def seal(self) -> None:
        """For an instance that lives on: what it has given away it can no longer change. Windows to write
        become windows to read, in place; what the guest stores there from now on is its own scribble."""
        for _, tensor in self.handles.of(Tensor):
            if tensor.window and tensor.writable and tensor.frozen:
                address = self.memory.base + tensor.window
                self.windows.unmap(address)
                self.windows.map(tensor.buffer, address, False)
                tensor.writable = False


class _Current(threading.local):
    context: Context | None = None


current = _Current()
"""The instance that runs on this thread, if one does: host functions are shared by all instances, and an
instance belongs to one thread at a time."""
