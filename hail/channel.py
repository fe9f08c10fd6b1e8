"""DMA channels: asynchronous copies between buffers, on a CPU by a copying thread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.errors import UsageError
from hailmesh.hail.work import Work, Worker

CHUNK = 1 << 20
"""Bytes copied at a stretch; bounds how long a more important copy waits."""


class Copy(Work):
    """A copy under way. `captured_ns`: when the content was captured (CLOCK_MONOTONIC), by which streams of
    different modalities are aligned."""

    def __init__(self, pieces: Iterator[tuple[int, int, int]], priority: int, captured_ns: int) -> None:
        super().__init__(lambda: _copy_next(pieces), priority)
        self.captured_ns = captured_ns


class Channel:
    """Copies in order of priority, then of submission."""

    def __init__(self, name: str = "dma") -> None:
        self._worker = Worker(f"channel-{name}")

    def copy(
        self,
        sources: Sequence[Buffer],
        destinations: Sequence[Buffer],
        *,
        priority: int = 0,
        captured_ns: int | None = None,
    ) -> Copy:
        """Gathers the bytes of all sources, in order, and scatters them over the destinations, in order.
        Both stay leased until the copy is done. UsageError if the totals differ."""
        read, written = (sum(buffer.nbytes for buffer in side) for side in (sources, destinations))
        if read != written:
            raise UsageError(f"the sources hold {read} bytes, the destinations {written}; they must agree")
        captured = time.monotonic_ns() if captured_ns is None else captured_ns
        copy = Copy(_pieces(sources, destinations), priority, captured)
        self._worker.submit(copy)
        return copy

    def close(self) -> None:
        """What is not done ends with Cancelled. Idempotent."""
        self._worker.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _copy_next(pieces: Iterator[tuple[int, int, int]]) -> bool:
    piece = next(pieces, None)
    if piece is None:
        return True
    destination, source, nbytes = piece
    ctypes.memmove(destination, source, nbytes)
    return False


def _pieces(sources: Sequence[Buffer], destinations: Sequence[Buffer]) -> Iterator[tuple[int, int, int]]:
    """(destination address, source address, bytes): the segments of both sides, cut where either ends."""
    targets = iter(destinations)
    address = room = 0
    for source in sources:
        at = 0
        while at < source.nbytes:
            while room == 0:
                target = next(targets)
                address, room = target.address, target.nbytes
            nbytes = min(source.nbytes - at, room, CHUNK)
            yield address, source.address + at, nbytes
            at, address, room = at + nbytes, address + nbytes, room - nbytes
