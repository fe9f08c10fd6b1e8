"""Slabs: equal blocks smaller than a granule, for audio frames, tokens and logits."""

from __future__ import annotations

import ctypes
import math
import threading

from hailmesh.hail.arena import GRANULE, Arena, Lease, Stage
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import UsageError

ALIGNMENT = 64
"""Bytes: a cache line, and what vector code wants."""


class SubLease:
    """One block of a slab, owned; released by hand or as a context manager."""

    __slots__ = ("_index", "_released", "_run", "_slab", "buffer")

    def __init__(self, slab: Slab, run: _Run, index: int, buffer: Buffer) -> None:
        self._slab = slab
        self._run = run
        self._index = index
        self._released = False
        self.buffer = buffer

    def release(self) -> None:
        """Gives the block back; idempotent."""
        if not self._released:
            self._released = True
            self._slab._give(self._run, self._index)

    def __enter__(self) -> SubLease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class _Run:
    """One leased run of granules, cut into blocks."""

    def __init__(self, lease: Lease, blocks: int) -> None:
        self.lease = lease
        self.blocks = blocks
        self.idle = list(range(blocks - 1, -1, -1))


class Slab:
    """Blocks of `block` bytes (rounded up to cache lines), out of runs of `granules` granules that are
    leased as needed and given back when empty. Never mappable into a guest. Thread-safe."""

    def __init__(
        self, arena: Arena, block: int, *, owner: str, modality: str = "", granules: int = 1
    ) -> None:
        self.block = -(-block // ALIGNMENT) * ALIGNMENT
        self._blocks = granules * GRANULE // self.block if block > 0 else 0
        if self._blocks < 2:
            raise UsageError(f"a slab cuts {granules} granules into at least 2 blocks, not of {block} bytes")
        self._arena = arena
        self._owner = owner
        self._modality = modality
        self._granules = granules
        self._runs: list[_Run] = []
        self._lock = threading.Lock()

    def lease(self, dtype: DType = DType.U8, shape: tuple[int, ...] | None = None) -> SubLease:
        """A zeroed block. UsageError if the shape takes more than a block, OutOfArena if a new run is
        needed and there is none."""
        shape = (self.block // dtype.itemsize,) if shape is None else shape
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self.block:
            raise UsageError(f"{shape} of {dtype.name} takes {nbytes} bytes, a block has {self.block}")
        with self._lock:
            run = next((run for run in self._runs if run.idle), None) or self._grow()
            index = run.idle.pop()
        whole = run.lease.buffer
        at = index * self.block
        ctypes.memset(whole.address + at, 0, self.block)
        buffer = Buffer(
            whole.offset + at,
            whole.address + at,
            nbytes,
            dtype,
            shape,
            whole.generation,
            mappable=False,
        )
        return SubLease(self, run, index, buffer)

    @property
    def count(self) -> int:
        """Blocks leased now."""
        with self._lock:
            return sum(run.blocks - len(run.idle) for run in self._runs)

    def close(self) -> None:
        """Gives the runs back, with all their blocks. Idempotent."""
        with self._lock:
            runs, self._runs = self._runs, []
        for run in runs:
            run.lease.release()

    def _grow(self) -> _Run:
        lease = self._arena.lease(
            self._granules * GRANULE, owner=self._owner, modality=self._modality, stage=Stage.CAPTURE
        )
        run = _Run(lease, self._blocks)
        self._runs.append(run)
        return run

    def _give(self, run: _Run, index: int) -> None:
        with self._lock:
            run.idle.append(index)
            # One empty run is kept, or a stream at its edge would lease and release with every frame.
            if len(run.idle) < run.blocks or run not in self._runs or len(self._runs) == 1:
                return
            self._runs.remove(run)
        run.lease.release()
