"""Windows: arena pages mapped into a guest's linear memory, without a copy."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass

from hailmesh.hail import libc
from hailmesh.hail.arena import GRANULE
from hailmesh.hail.buffer import Buffer
from hailmesh.hail.errors import NotFound, UsageError

_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FAILED = 2**64 - 1
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def map_window(arena_fd: int, offset: int, address: int, nbytes: int, *, write: bool) -> None:
    """Maps `nbytes` at `offset` of the arena over whatever is at `address` of this process. To write:
    shared. To read: private, copy on write, and never PROT_READ: a host call that fills guest memory would
    die of it. All three are multiples of the page size. OSError if the kernel refuses."""
    flags = mmap.MAP_SHARED if write else mmap.MAP_PRIVATE | _MAP_NORESERVE
    _map(address, nbytes, flags, arena_fd, offset)


def restore(address: int, nbytes: int) -> None:
    """Puts fresh anonymous zero pages back over a window."""
    _map(address, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)


def _map(address: int, nbytes: int, flags: int, fd: int, offset: int) -> None:
    got = libc.brief().mmap(address, nbytes, _READ_WRITE, flags | _MAP_FIXED, fd, offset)
    if got is None or got == _FAILED:
        raise libc.failed(f"mmap of {nbytes} bytes at {address:#x}")


def padded(nbytes: int) -> int:
    """The size of a window for `nbytes` bytes of content: whole granules, at least one."""
    return max(1, -(-nbytes // GRANULE)) * GRANULE


@dataclass(frozen=True, slots=True)
class Window:
    address: int
    nbytes: int
    offset: int
    write: bool


class Windows:
    """All windows of one instance, over its linear memory. Before its store is dropped, `restore_all` must
    have run: memory that is handed on with a window in it shows the arena to the next tenant."""

    def __init__(self, arena_fd: int, *, base: int = 0, limit: Callable[[], int] | int | None = None) -> None:
        """`base`: the address of the linear memory; `limit`: its size in bytes, beyond which nothing may be
        mapped (a function, since a guest's memory grows). Without them the caller checks."""
        self._fd = arena_fd
        self._base = base
        self._limit = limit
        self._open: dict[int, Window] = {}
        self._lock = threading.Lock()

    def map(self, buffer: Buffer, address: int, write: bool) -> None:
        """Maps the whole granules that hold `buffer` at `address`. UsageError if either isn't aligned to
        64 KiB, the window leaves the linear memory, or it overlaps another one."""
        nbytes = padded(buffer.nbytes)
        start = address - self._base
        if not buffer.mappable:
            raise UsageError("a part of a granule is never mapped: its neighbours would show; copy it")
        if address % GRANULE or buffer.offset % GRANULE:
            raise UsageError(
                f"a window needs 64 KiB alignment, not address {address:#x}"
                f" and arena offset {buffer.offset:#x}"
            )
        limit = self._limit() if callable(self._limit) else self._limit
        if start < 0 or (limit is not None and start + nbytes > limit):
            raise UsageError(f"a window of {nbytes} bytes at {start:#x} leaves the guest's memory")
        with self._lock:
            for other in self._open.values():
                if address < other.address + other.nbytes and other.address < address + nbytes:
                    raise UsageError(
                        f"a window at {start:#x} overlaps the one at {other.address - self._base:#x}"
                    )
            map_window(self._fd, buffer.offset, address, nbytes, write=write)
            self._open[address] = Window(address, nbytes, buffer.offset, write)

    def unmap(self, address: int) -> None:
        """Zero pages again; NotFound if no window begins at `address`."""
        with self._lock:
            window = self._open.get(address)
            if window is None:
                raise NotFound(f"no window begins at {address:#x}")
            restore(window.address, window.nbytes)
            del self._open[address]

    def restore_all(self) -> None:
        """Unmaps every window. Idempotent."""
        with self._lock:
            while self._open:
                window = next(reversed(self._open.values()))
                restore(window.address, window.nbytes)
                del self._open[window.address]

    def find(self, address: int, nbytes: int) -> Window | None:
        """The window that holds all of these bytes, if one does."""
        with self._lock:
            for window in self._open.values():
                if window.address <= address and address + nbytes <= window.address + window.nbytes:
                    return window
        return None

    def __len__(self) -> int:
        return len(self._open)
