"""The few libc calls Python has no function for, with errno turned into OSError."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def brief() -> ctypes.PyDLL:
    """libc for calls of a few microseconds: the GIL is kept, since getting it back from a busy thread
    costs up to a switch interval (5 ms), far more than the call."""
    library = ctypes.PyDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    library.memset.restype = ctypes.c_void_p
    library.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    library.mincore.restype = ctypes.c_int
    library.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    library.syscall.restype = ctypes.c_long
    return library


@cache
def waiting() -> ctypes.CDLL:
    """libc for calls that may take long: the GIL is released meanwhile."""
    library = ctypes.CDLL(None, use_errno=True)
    library.fallocate.restype = ctypes.c_int
    library.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    library.memset.restype = ctypes.c_void_p
    library.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    library.syscall.restype = ctypes.c_long
    return library


def failed(call: str) -> OSError:
    """The OSError of the libc call that has just failed in this thread."""
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")
