"""Sealed shared memory: a memfd that can't change its size, and a mapping of the whole of it."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

from hailmesh.hail import libc

_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2

PUNCH_FROM = 1 << 20
"""Blocks from this size on are zeroed by punching a hole; see `Mapping.zero`."""


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
        """Makes the bytes zero. A small block is overwritten: its pages stay, the next touch is cheap. The
        pages of a large one are given back: the cost is that of the pages it had, a touch of a new page
        comes on use, and a tensor that is half filled takes half the memory."""
        if nbytes < PUNCH_FROM:
            libc.brief().memset(self.address + offset, 0, nbytes)
        else:
            self.punch(offset, nbytes)

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
