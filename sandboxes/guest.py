"""A guest's linear memory, as the host may touch it: every address and length is checked first."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from hailmesh.sandboxes.engine import MAX_MEMORY
from hailmesh.sandboxes.errno import CallError, Errno

_Whole = ctypes.c_uint8 * MAX_MEMORY


class Memory:
    """`base` never changes (the engine's memories don't move); `size` only grows, and is asked for again
    when something lies beyond it. Not to be used once the store is gone."""

    def __init__(self, base: int, measure: Callable[[], int]) -> None:
        self.base = base
        # Of all that is reserved, so that it needn't be made again as the memory grows. A slice of it costs
        # a seventh of ctypes.memmove.
        self.view = memoryview(_Whole.from_address(base)).cast("B")
        self._measure = measure
        self._size = measure()

    @property
    def size(self) -> int:
        """Bytes, as of now."""
        self._size = self._measure()
        return self._size

    def check(self, pointer: int, nbytes: int) -> None:
        """EFAULT unless `nbytes` bytes at `pointer` lie in the memory. Before anything touches `view`."""
        if pointer + nbytes > self._size and pointer + nbytes > self.size:
            raise CallError(Errno.EFAULT, f"{nbytes} bytes at {pointer:#x} don't lie in the unit's memory")

    def read(self, pointer: int, nbytes: int) -> bytes:
        """A copy."""
        self.check(pointer, nbytes)
        return self.view[pointer : pointer + nbytes].tobytes()

    def write(self, pointer: int, data: bytes) -> None:
        self.check(pointer, len(data))
        self.view[pointer : pointer + len(data)] = data

    def fill(self, pointer: int, capacity: int, data: bytes) -> int:
        """The convention of calls that fill a buffer: writes what fits, returns the whole length."""
        self.write(pointer, data[:capacity] if capacity < len(data) else data)
        return len(data)

    def text(self, pointer: int, nbytes: int, most: int) -> str:
        """UTF-8 of at most `most` bytes; E2BIG, EILSEQ."""
        if nbytes > most:
            raise CallError(Errno.E2BIG, f"a text of {nbytes} bytes, at most {most} are taken here")
        self.check(pointer, nbytes)
        try:
            return str(self.view[pointer : pointer + nbytes], "utf-8")
        except UnicodeDecodeError as error:
            raise CallError(Errno.EILSEQ, f"the text isn't UTF-8: {error.reason}") from None

    def integers(self, pointer: int, count: int, most: int) -> tuple[int, ...]:
        """An array of i32; E2BIG above `most` elements."""
        if count > most:
            raise CallError(Errno.E2BIG, f"an array of {count} elements, at most {most} are taken here")
        self.check(pointer, 4 * count)
        return struct.unpack_from(f"<{count}i", self.view, pointer)
