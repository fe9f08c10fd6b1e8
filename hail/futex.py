"""Futex: sleep until a word of shared memory changes, in any process that maps it."""

from __future__ import annotations

import ctypes
import platform
import time
from functools import cache

from hailmesh.hail import libc

_WAIT = 0
_WAKE = 1
_EVERYONE = 2**31 - 1
_NUMBERS = {"x86_64": 202, "aarch64": 98}


@cache
def _number() -> int | None:
    return _NUMBERS.get(platform.machine())


def wait(word: ctypes.c_uint32, expected: int, timeout_ns: int) -> None:
    """Returns when woken, at once if the word isn't `expected`, after `timeout_ns` at the latest, and now
    and then for no reason: the caller looks again. On other machines than x86-64 and aarch64 it sleeps."""
    timeout_ns = max(0, timeout_ns)
    number = _number()
    if number is None:
        time.sleep(timeout_ns / 1e9)
        return
    timeout = (ctypes.c_int64 * 2)(*divmod(timeout_ns, 1_000_000_000))
    _call(libc.waiting(), number, word, _WAIT, expected, timeout)


def wake(word: ctypes.c_uint32) -> None:
    """Wakes all that wait for the word; change it first."""
    number = _number()
    if number is not None:
        _call(libc.brief(), number, word, _WAKE, _EVERYONE, None)


def _call(
    library: ctypes.CDLL, number: int, word: ctypes.c_uint32, operation: int, value: int, timeout: object
) -> None:
    # Without prototype, ctypes passes int as a C int; the syscall wants whole registers.
    library.syscall(
        ctypes.c_long(number),
        ctypes.byref(word),
        ctypes.c_long(operation),
        ctypes.c_long(value),
        timeout,
        None,
        ctypes.c_long(0),
    )
