"""Buffer, the memory descriptor: where a tensor's bytes lie, and how they are to be read."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt


class DType(IntEnum):
    """Element types, numbered as in the unit ABI; 0 to 5 agree with wasi-nn."""

    F16 = 0
    F32 = 1
    F64 = 2
    U8 = 3
    I32 = 4
    I64 = 5
    I8 = 6
    I16 = 7
    U16 = 8
    U32 = 9
    U64 = 10
    BOOL = 11

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        return _NUMPY[self].itemsize

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> DType:
        """The DType of a numpy dtype; KeyError if there is none."""
        return _DTYPE[np.dtype(dtype)]


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F16: np.dtype("<f2"),
    DType.F32: np.dtype("<f4"),
    DType.F64: np.dtype("<f8"),
    DType.U8: np.dtype("u1"),
    DType.I32: np.dtype("<i4"),
    DType.I64: np.dtype("<i8"),
    DType.I8: np.dtype("i1"),
    DType.I16: np.dtype("<i2"),
    DType.U16: np.dtype("<u2"),
    DType.U32: np.dtype("<u4"),
    DType.U64: np.dtype("<u8"),
    DType.BOOL: np.dtype("?"),
}
_DTYPE = {numpy: dtype for dtype, numpy in _NUMPY.items()}


class MemoryType(Enum):
    HOST = "host"
    CUDA = "cuda"
    NPU = "npu"


class Coherence(Enum):
    COHERENT = "coherent"
    EXPLICIT_SYNC = "explicit-sync"


@dataclass(frozen=True, slots=True)
class Buffer:
    """`offset`: bytes from the arena's start (the same in every process);
    `address`: virtual address in this process; `nbytes`: bytes of content, at most the block's size;
    `mappable`: False for a part of a granule, whose neighbours a guest would see."""

    offset: int
    address: int
    nbytes: int
    dtype: DType = DType.U8
    shape: tuple[int, ...] = ()
    generation: int = 0
    memory: MemoryType = MemoryType.HOST
    coherence: Coherence = Coherence.COHERENT
    mappable: bool = True

    def numpy(self) -> npt.NDArray[np.generic]:
        """A view of the bytes, never a copy. Valid while the lease it came from is."""
        raw = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        array: npt.NDArray[np.generic] = np.ndarray(
            self.shape, dtype=self.dtype.numpy, buffer=memoryview(raw).cast("B")
        )
        return array

    def typed(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """The same bytes under another dtype and shape; nbytes shrinks to fit, never grows."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self.nbytes:
            raise ValueError(f"{shape} of {dtype.name} needs {nbytes} bytes, the buffer has {self.nbytes}")
        return replace(self, dtype=dtype, shape=shape, nbytes=nbytes)
