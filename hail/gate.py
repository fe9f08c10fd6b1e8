"""The gate: less urgent device work waits while more urgent work runs or wants to, in any process.

The page (64 KiB, the first granule of the arena):

    offset 0     u32 sequence, a futex word: changes when somebody left who may have kept others waiting
    offset 256   u32 masks[3 domains][64 rows]: bit n is set while the row's process has work of level n
                 that runs or wants to run in the domain

Python has no atomic operations, so nothing here needs one: a row's words have a single writer, the process
that owns the row, and are aligned u32 stores. The sequence has many writers that may lose one another's
increments; every waiter looks again after at most 5 ms, so the worst of it is that much delay.
"""

from __future__ import annotations

import ctypes
import threading
import time
from enum import IntEnum
from functools import cache
from weakref import WeakValueDictionary

from hailmesh.hail import futex
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import DeadlineExceeded, UsageError

LEVELS = 32
ROWS = 64
_MASKS = 256
_ROW_BYTES = ROWS * 4
_REPOLL_NS = 5_000_000


class Domain(IntEnum):
    """Which cores the work runs on. WIDE shares cores with both others, which share none: it lies between
    them, so that whatever a domain competes with is one run of the page."""

    URGENT = 0
    WIDE = 1
    BEST_EFFORT = 2


_RIVALS = {
    Domain.URGENT: (Domain.URGENT, Domain.WIDE),
    Domain.WIDE: (Domain.URGENT, Domain.BEST_EFFORT),
    Domain.BEST_EFFORT: (Domain.WIDE, Domain.BEST_EFFORT),
}


@cache
def _above(domains: int) -> tuple[int, ...]:
    """Per level, what to AND with all masks of that many domains to see the levels above it."""
    words = domains * ROWS
    return tuple(
        int.from_bytes(((0xFFFFFFFF << (level + 1)) & 0xFFFFFFFF).to_bytes(4, "little") * words, "little")
        for level in range(LEVELS)
    )


@cache
def _below(domains: int) -> tuple[int, ...]:
    words = domains * ROWS
    return tuple(
        int.from_bytes(((1 << level) - 1).to_bytes(4, "little") * words, "little") for level in range(LEVELS)
    )


class _Row:
    """This process's part of the page, shared by its gates of all domains."""

    def __init__(self, address: int, row: int) -> None:
        self.index = row
        self.lock = threading.Lock()
        self.counts = [[0] * LEVELS for _ in Domain]
        self.mask = [0] * len(Domain)
        self.sequence = ctypes.c_uint32.from_address(address)
        size = len(Domain) * _ROW_BYTES
        self.masks = memoryview((ctypes.c_uint8 * size).from_address(address + _MASKS)).cast("B")
        self.words = self.masks.cast("I")
        for domain in Domain:
            self.words[domain * ROWS + row] = 0


_rows: WeakValueDictionary[tuple[int, int], _Row] = WeakValueDictionary()
_rows_lock = threading.Lock()


def _row(address: int, row: int) -> _Row:
    """The one _Row of this process for that row: two would write over each other's word."""
    with _rows_lock:
        known = _rows.get((address, row))
        if known is None:
            known = _rows[address, row] = _Row(address, row)
        return known


class Gate:
    """One process's way through the gate page at `buffer_address`. `row` (0 to 63) is this process's alone,
    and empty when its first Gate is made. Thread-safe."""

    def __init__(self, buffer_address: int, row: int) -> None:
        if not 0 <= row < ROWS:
            raise UsageError(f"a gate row is 0 to {ROWS - 1}, not {row}")
        self._own = _row(buffer_address, row)
        self._bind(Domain.WIDE)

    def _bind(self, domain: Domain) -> None:
        self._domain = int(domain)
        self._word = domain * ROWS + self._own.index
        first, last = _RIVALS[domain]
        self._rivals = self._own.masks[first * _ROW_BYTES : (last + 1) * _ROW_BYTES]
        self._above = _above(last - first + 1)
        self._below = _below(last - first + 1)

    def within(self, domain: Domain) -> Gate:
        """The same process's gate for work on the cores of `domain`: it waits only for work that shares
        cores with it. A new Gate is WIDE, which waits for all."""
        gate = object.__new__(Gate)
        gate._own = self._own
        gate._bind(domain)
        return gate

    def enter(self, level: int, token: CancelToken) -> float:
        """Waits while work of a higher level runs or wants to run on shared cores, and returns the seconds
        it waited. From the call on, lower levels wait for this one. Raises what `token.check` raises, and
        DeadlineExceeded once the token's latest start has passed; then it is as if never called."""
        self._count(level, 1)
        began = 0
        try:
            while True:
                sequence = self._own.sequence.value
                self._may_start(token)
                if not self._blocked(level):
                    return (time.monotonic_ns() - began) / 1e9 if began else 0.0
                began = began or time.monotonic_ns()
                left = token.latest_start_ns - time.monotonic_ns()
                futex.wait(self._own.sequence, sequence, min(_REPOLL_NS, left))
        except BaseException:
            self.leave(level)
            raise

    def leave(self, level: int) -> None:
        """The step that `enter` let pass has ended."""
        if self._count(level, -1) == 0 and int.from_bytes(self._rivals, "little") & self._below[level]:
            self._wake()

    def busy_above(self, level: int) -> bool:
        """Whether higher work runs or wants to on shared cores: a long step should now be cut short."""
        return bool(self._blocked(level))

    def active(self, row: int) -> tuple[int, ...]:
        """The levels at which the process of `row` runs work or wants to, lowest first."""
        mask = 0
        for domain in Domain:
            mask |= self._own.words[domain * ROWS + row]
        return tuple(level for level in range(LEVELS) if mask >> level & 1)

    def clear_row(self, row: int) -> None:
        """For the supervisor, after the process of `row` died: nobody waits for its work any more."""
        for domain in Domain:
            self._own.words[domain * ROWS + row] = 0
        self._wake()

    def _count(self, level: int, by: int) -> int:
        if not 0 <= level < LEVELS:
            raise UsageError(f"a level is 0 to {LEVELS - 1}, not {level}")
        own = self._own
        counts = own.counts[self._domain]
        with own.lock:
            left = counts[level] + by
            if left < 0:
                raise UsageError(f"level {level} was left more often than entered")
            counts[level] = left
            if left == (1 if by > 0 else 0):
                own.mask[self._domain] ^= 1 << level
                own.words[self._word] = own.mask[self._domain]
        return left

    def _blocked(self, level: int) -> int:
        return int.from_bytes(self._rivals, "little") & self._above[level]

    def _may_start(self, token: CancelToken) -> None:
        token.check()
        if token.latest_start_ns < token.deadline_ns and time.monotonic_ns() >= token.latest_start_ns:
            raise DeadlineExceeded("its latest start passed while it waited for more urgent work")

    def _wake(self) -> None:
        self._own.sequence.value = (self._own.sequence.value + 1) & 0xFFFFFFFF
        futex.wake(self._own.sequence)
