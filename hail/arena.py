"""The Unified Memory Arena: one sealed memfd, leased in 64 KiB granules."""

from __future__ import annotations

import math
import os
import threading
from collections import deque

from hailmesh.hail import memfd
from hailmesh.hail.accounts import Accounts
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import OutOfArena, UsageError
from hailmesh.hail.extents import Extents
from hailmesh.hail.handles import Handles, generation
from hailmesh.hail.lease import Block, Lease
from hailmesh.hail.report import ArenaReport, Stage

__all__ = ["GRANULE", "Arena", "ArenaReport", "Lease", "Stage"]

GRANULE = 65536
"""Bytes. The largest page of any kernel we run on (aarch64 has 64 KiB pages), and a wasm page."""


_SAMPLE_FROM = 1 << 20


class Arena:
    """An allocator over a range of a memfd that several processes map. Thread-safe; the ranges of different
    processes are disjoint, so no process ever asks another."""

    def __init__(self, mapping: memfd.Mapping, offset: int, size: int, burst: float) -> None:
        self.offset = offset
        self.size = size
        self.address = mapping.address
        self._mapping = mapping
        self._span_limit = int(size * (1 - burst))
        self._spans = 0
        self._extents = Extents(size // GRANULE)
        self._lock = threading.Lock()
        self._handles = Handles()
        self._accounts = Accounts()
        self._count = 0
        self._quarantine: list[Block] = []
        self._orphans: deque[Block] = deque()
        self._peak_resident = 0
        self._closed = False

    @classmethod
    def create(cls, size: int, *, burst: float = 0.20) -> Arena:
        """A new arena of `size` bytes, rounded up to granules. Spans may take at most 1 - `burst` of it."""
        if size <= 0 or not 0 <= burst < 1:
            raise UsageError(f"an arena has a size above 0 and a burst in [0, 1), not {size} and {burst}")
        size = -(-size // GRANULE) * GRANULE
        return cls(memfd.Mapping(memfd.create("hailmesh-arena", size)), 0, size, burst)

    @classmethod
    def attach(cls, fd: int, offset: int, size: int) -> Arena:
        """An allocator over `size` bytes at `offset` of somebody else's arena, who has reserved them with
        `span`. The whole memfd is mapped, so that blocks leased elsewhere in it can be viewed. `fd` stays
        the caller's. UsageError if the range doesn't lie in the memfd, or the memfd could shrink."""
        if not memfd.sealed(fd):
            raise UsageError(f"descriptor {fd} is not a memfd sealed against shrinking, as an arena's is")
        total = os.fstat(fd).st_size
        if offset % GRANULE or size % GRANULE or offset < 0 or size <= 0 or offset + size > total:
            raise UsageError(
                f"a span is whole granules of {GRANULE} bytes within the arena's {total},"
                f" not {size} bytes at {offset}"
            )
        return cls(memfd.Mapping(os.dup(fd)), offset, size, 0.0)

    @property
    def fd(self) -> int:
        return self._mapping.fd

    def set_quota(self, owner: str, nbytes: int | None) -> None:
        """At most `nbytes`, counted in whole granules, for all leases and spans of `owner`; None: no limit.
        What it holds above that it keeps."""
        with self._lock:
            self._accounts.owners[owner].quota = nbytes

    def set_modality_quota(self, modality: str, nbytes: int | None) -> None:
        """As `set_quota`, for all leases of one modality."""
        with self._lock:
            self._accounts.modalities[modality].quota = nbytes

    def lease(
        self,
        nbytes: int,
        *,
        owner: str,
        modality: str = "",
        dtype: DType = DType.U8,
        shape: tuple[int, ...] | None = None,
        stage: Stage = Stage.CAPTURE,
    ) -> Lease:
        """A zeroed block of at least `nbytes` bytes, all of it zero to the end of its last granule. Without
        a shape it is one dimension of `dtype`. `owner` is whom it is counted for, a unit's name, not a
        request's: accounts are kept for good. OutOfArena tells what was asked and what there is."""
        shape = (nbytes // dtype.itemsize,) if shape is None else shape
        content = math.prod(shape) * dtype.itemsize
        if content > nbytes or nbytes < 0:
            raise UsageError(f"{shape} of {dtype.name} takes {content} bytes, not {nbytes}")
        block = self._take(nbytes, owner, modality, stage, span=False)
        return self._lend(block, content, dtype, shape)

    def span(self, nbytes: int, *, owner: str) -> Lease:
        """A contiguous reservation for a process of its own, which attaches it. From the upper end, away
        from the short-lived leases; all spans together leave the arena's burst share alone."""
        block = self._take(nbytes, owner, "", Stage.INFER, span=True)
        return self._lend(block, block.nbytes, DType.U8, (block.nbytes,))

    def view(self, offset: int, nbytes: int, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """A Buffer of bytes that somebody else has leased, at an offset of the memfd. UsageError if they
        don't lie in the memfd, or the shape doesn't fit them."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self._mapping.size:
            raise UsageError(f"{nbytes} bytes at {offset} don't lie in the arena's {self._mapping.size}")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > nbytes:
            raise UsageError(f"{shape} of {dtype.name} doesn't fit in {nbytes} bytes")
        content = math.prod(shape) * dtype.itemsize
        return Buffer(offset, self.address + offset, content, dtype, shape)

    def resolve(self, handle: int) -> Lease:
        """The lease of a handle; NotFound once it was released, even if its place was leased again."""
        with self._lock:
            return self._handles.resolve(handle)

    @property
    def count(self) -> int:
        """Blocks not yet back in the pool: live leases, and those in quarantine."""
        with self._lock:
            self._reclaim()
            return self._count

    @property
    def used(self) -> int:
        with self._lock:
            self._reclaim()
            return self._accounts.total.used

    @property
    def free(self) -> int:
        return self.size - self.used

    @property
    def largest_free(self) -> int:
        with self._lock:
            self._reclaim()
            return self._extents.largest * GRANULE

    @property
    def fragmentation(self) -> float:
        """1 - largest free / total free; 0 when nothing is free."""
        with self._lock:
            self._reclaim()
            return self._fragmentation()

    def report(self) -> ArenaReport:
        """A consistent picture of the arena as it is now."""
        with self._lock:
            self._reclaim()
            self._sample()
            books = self._accounts
            return ArenaReport(
                size=self.size,
                used=books.total.used,
                peak_used=books.total.peak,
                free=self._extents.free * GRANULE,
                largest_free=self._extents.largest * GRANULE,
                fragmentation=self._fragmentation(),
                count=self._count,
                quarantined=len(self._quarantine),
                resident=self._mapping.resident,
                peak_resident=self._peak_resident,
                redundant=books.total.redundant,
                redundancy=books.redundancy,
                stages={stage: tally.usage() for stage, tally in books.stages.items()},
                owners={owner: tally.usage() for owner, tally in books.owners.items()},
                modalities={name: tally.usage() for name, tally in books.modalities.items()},
            )

    def trim(self) -> None:
        """Gives the pages of all free blocks back to the system."""
        with self._lock:
            self._reclaim()
            for start, length in self._extents.runs():
                self._mapping.punch(self.offset + start * GRANULE, length * GRANULE)

    def close(self) -> None:
        """No more leases. The memory is unmapped once the last one has been released. Idempotent."""
        with self._lock:
            self._closed = True
            self._reclaim()
            self._unmap_if_done()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take(self, nbytes: int, owner: str, modality: str, stage: Stage, *, span: bool) -> Block:
        length = max(1, -(-nbytes // GRANULE))
        size = length * GRANULE
        with self._lock:
            if self._closed:
                raise UsageError("the arena is closed; lease before closing it")
            self._reclaim()
            self._check_limits(size, owner, modality, span)
            start = self._extents.take(length, high=span)
            if start is None:
                raise self._out(size, owner, "no free block is large enough")
            block = Block(start, length, size, owner, modality, stage, span)
            block.handle = self._handles.make()
            self._count += 1
            self._spans += size if span else 0
            self._accounts.add(block)
        return block

    def _lend(self, block: Block, nbytes: int, dtype: DType, shape: tuple[int, ...]) -> Lease:
        offset = self.offset + block.start * GRANULE
        buffer = Buffer(offset, self.address + offset, nbytes, dtype, shape, generation(block.handle))
        try:
            self._mapping.zero(offset, block.nbytes)
            lease = Lease(self, block, buffer)
        except BaseException:
            self._release(block)
            raise
        with self._lock:
            self._handles.bind(block.handle, lease)
        return lease

    def _check_limits(self, size: int, owner: str, modality: str, span: bool) -> None:
        if span and self._spans + size > self._span_limit:
            raise self._out(size, owner, f"spans may take {self._span_limit} bytes, {self._spans} are taken")
        excess = self._accounts.excess(size, owner, modality)
        if excess is not None:
            raise self._out(size, owner, excess)

    def _out(self, size: int, owner: str, why: str) -> OutOfArena:
        free = self._extents.free * GRANULE
        largest = self._extents.largest * GRANULE
        return OutOfArena(
            f"{owner!r} asked for {size} bytes: {why};"
            f" the arena has {free} bytes free, the largest block {largest}"
        )

    def _move(self, block: Block, stage: Stage) -> None:
        with self._lock:
            if not block.retired:
                self._accounts.move(block, stage)

    def _mark_read(self, block: Block) -> None:
        with self._lock:
            if not block.retired:
                self._accounts.mark_read(block)

    def _release(self, block: Block) -> None:
        with self._lock:
            self._retire(block)
            self._reclaim()
            self._unmap_if_done()

    def _orphan(self, block: Block) -> None:
        # Called by the garbage collector, perhaps in the middle of this very arena's work in this thread, or,
        # when the process ends, after the memory has gone.
        if self._mapping.fd < 0:
            return
        self._orphans.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._reclaim()
                self._unmap_if_done()
            finally:
                self._lock.release()

    def _retire(self, block: Block) -> None:
        """The handle is stale from here on; the block returns when nobody can write it."""
        if block.retired:
            return
        block.retired = True
        self._handles.unbind(block.handle)
        if block.finished():
            self._return(block)
        else:
            self._quarantine.append(block)

    def _return(self, block: Block) -> None:
        self._accounts.drop(block)
        if block.nbytes >= _SAMPLE_FROM:
            self._sample()
        if block.span:
            self._spans -= block.nbytes
            self._mapping.punch(self.offset + block.start * GRANULE, block.nbytes)
        self._extents.give(block.start, block.length)
        self._handles.free(block.handle)
        self._count -= 1

    def _reclaim(self) -> None:
        while self._orphans:
            self._retire(self._orphans.popleft())
        if self._quarantine:
            kept, self._quarantine = self._quarantine, []
            for block in kept:
                if block.finished():
                    self._return(block)
                else:
                    self._quarantine.append(block)

    def _fragmentation(self) -> float:
        free = self._extents.free
        return 1 - self._extents.largest / free if free else 0.0

    def _sample(self) -> None:
        self._peak_resident = max(self._peak_resident, self._mapping.resident)

    def _unmap_if_done(self) -> None:
        if self._closed and self._count == 0:
            self._mapping.close()
