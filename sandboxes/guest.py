"""A guest's linear memory, as the host may touch it: every address and length is checked first."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from hailmesh.sandboxes.errno import CallError, Errno


class Memory:
    """`base` never changes (the engine's memories don't move); `size` only grows, and is asked for again
    when something lies beyond it."""

    def __init__(self, base: int, measure: Callable[[], int]) -> None:
        self.base = base
        self._measure = measure
        self._size = measure()

    @property
    def size(self) -> int:
        """Bytes, as of now."""
        self._size = self._measure()
        return self._size

    def check(self, pointer: int, nbytes: int) -> int:
        """The host's address of `nbytes` bytes at `pointer`; EFAULT if they don't lie in the memory."""
        if pointer + nbytes > self._size and pointer + nbytes > self.size:
            raise CallError(Errno.EFAULT, f"{nbytes} bytes at {pointer:#x} don't lie in the unit's memory")
        return self.base + pointer

    def read(self, pointer: int, nbytes: int) -> bytes:
        """A copy."""
        return ctypes.string_at(self.check(pointer, nbytes), nbytes)

    def write(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(self.check(pointer, len(data)), data, len(data))

    def fill(self, pointer: int, capacity: int, data: bytes) -> int:
        """The convention of calls that fill a buffer: writes what fits, returns the whole length."""
        self.write(pointer, data[:capacity] if capacity < len(data) else data)
        return len(data)

    def text(self, pointer: int, nbytes: int, most: int) -> str:
        """UTF-8 of at most `most` bytes; E2BIG, EILSEQ."""
        if nbytes > most:
            raise CallError(Errno.E2BIG, f"a text of {nbytes} bytes, at most {most} are taken here")
        try:
            return self.read(pointer, nbytes).decode()
        except UnicodeDecodeError as error:
            raise CallError(Errno.EILSEQ, f"the text isn't UTF-8: {error.reason}") from None

    def integers(self, pointer: int, count: int, most: int) -> tuple[int, ...]:
        """An array of i32; E2BIG above `most` elements."""
        if count > most:
            raise CallError(Errno.E2BIG, f"an array of {count} elements, at most {most} are taken here")
        return struct.unpack(f"<{count}i", self.read(pointer, 4 * count))
