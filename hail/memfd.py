"""Sealed shared memory: a memfd that can't change its size, and a mapping of the whole of it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator

from hailmesh.hail import libc

_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2

LAZY_FROM = 256 << 10
"""Bytes. Smaller blocks are overwritten whole, whether they have pages or not."""

_RUNS = 16
_BRIEF = 256 << 10


def create(name: str, size: int) -> int:
    """A descriptor of `size` zero bytes. Sealed against shrinking, or a touch past a new end would be a
    SIGBUS in whoever mapped it, and against growing, so that its size can be trusted once read."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


def sealed(fd: int) -> bool:
    """Whether `fd` is a memfd that nobody can shrink any more."""
    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False


class Mapping:
    """The whole memfd, shared, in this process. Owns the mapping, and a descriptor of its own."""

    def __init__(self, fd: int) -> None:
        """Takes `fd` over."""
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, self.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        # Other people's pictures and prompts have no place in a core dump.
        self._memory.madvise(mmap.MADV_DONTDUMP)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def zero(self, offset: int, nbytes: int) -> None:
        """Makes whole pages zero. Those that exist are overwritten, those that don't stay absent, so that a
        block which is mostly room takes no memory. To overwrite is a fifteenth of the cost of giving a page
        back and faulting in a new one (87 µs against 1.3 ms for 1 MiB, measured in a virtual machine)."""
        if nbytes < LAZY_FROM:
            self._overwrite(offset, nbytes)
        elif self._has_data(offset, nbytes):
            self._zero_resident(offset, nbytes)

    def _has_data(self, offset: int, nbytes: int) -> bool:
        try:
            return os.lseek(self.fd, offset, os.SEEK_DATA) < offset + nbytes
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise

    def _zero_resident(self, offset: int, nbytes: int) -> None:
        pages = -(-nbytes // mmap.PAGESIZE)
        resident = (ctypes.c_uint8 * pages)()
        if libc.brief().mincore(self.address + offset, nbytes, resident) != 0:
            raise libc.failed("mincore")
        runs = list(_runs(bytes(resident)))
        if len(runs) > _RUNS:
            self.punch(offset, nbytes)
            return
        for first, count, present in runs:
            start, length = offset + first * mmap.PAGESIZE, count * mmap.PAGESIZE
            # A page that isn't in memory may still have content, in swap: dropped, not skipped.
            (self._overwrite if present else self.punch)(start, length)

    def _overwrite(self, offset: int, nbytes: int) -> None:
        library = libc.brief() if nbytes <= _BRIEF else libc.waiting()
        library.memset(self.address + offset, 0, nbytes)

    def punch(self, offset: int, nbytes: int) -> None:
        """Gives the pages back to the system; they read as zero."""
        mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
        if libc.waiting().fallocate(self.fd, mode, offset, nbytes) != 0:
            raise libc.failed("fallocate(PUNCH_HOLE)")

    @property
    def resident(self) -> int:
        """Bytes of the memfd that have pages, whoever touched them."""
        return os.fstat(self.fd).st_blocks * 512

    def close(self) -> None:
        """Idempotent. Every view into the memory must be gone."""
        if self.fd >= 0:
            self._memory.close()
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0 and hasattr(self, "_memory"):
            self.close()


def _runs(resident: bytes) -> Iterator[tuple[int, int, bool]]:
    """(first page, pages, whether they are resident), from mincore's answer of one byte a page."""
    at = 0
    while at < len(resident):
        present = resident[at] & 1
        end = resident.find(1 - present, at)
        end = len(resident) if end < 0 else end
        yield at, end - at, bool(present)
        at = end
