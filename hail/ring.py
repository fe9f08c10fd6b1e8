"""The sequence decoupling interface: a ring of timestamped events in arena memory, one producer and one
consumer, in one process or two. Nothing in it blocks: a full ring refuses, an empty one has nothing.

    offset 0     u32 magic, u32 slots, u32 room (payload bytes of a slot), u32 newest_wins
    offset 64    u64 pushed, u64 refused, u32 bell     written by the producer alone
    offset 128   u64 popped, u64 lost, u32 waiting     written by the consumer alone
    offset 192   the slots, each a multiple of 64 bytes:
                 u64 stamp, i64 timestamp_ns, u32 kind, u32 length, u32 check, u32 unused, payload

Event n lies in slot n mod slots and carries the stamp n + 1; while it is written the stamp is 0. The words
are aligned, so each is stored whole. x86-64 keeps the order of the stores; aarch64 need not, and Python has
no barrier. Hence `check`, the CRC-32 of stamp, timestamp, kind, length and payload: the consumer copies a
slot out first, and takes the copy only if stamp and check agree. Bytes that have not arrived yet, or are
being overwritten, fail that and are looked at again later; they never pass for an event.
"""

from __future__ import annotations

import ctypes
import struct
import time
import zlib
from dataclasses import dataclass

from hailmesh.hail import futex
from hailmesh.hail.buffer import Buffer
from hailmesh.hail.errors import UsageError

_MAGIC = 0x52494E47
_HEADER = struct.Struct("<IIII")
_SLOT = struct.Struct("<QqIIII")
_CONTENT = struct.Struct("<qIIII")
_CHECKED = struct.Struct("<QqII")
_PUSHED, _REFUSED = 64 // 8, 72 // 8
_POPPED, _LOST = 128 // 8, 136 // 8
_BELL, _WAITING = 80, 144
_SLOTS = 192
_LINE = 64
_LOOK_AGAIN_NS = 5_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """`sequence` counts from 0; `timestamp_ns` is the time of capture; `kind` is the producer's own."""

    sequence: int
    timestamp_ns: int
    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Counters:
    """Events: accepted, handed out, refused as Full, and overwritten before they were read."""

    pushed: int
    popped: int
    refused: int
    lost: int


class Ring:
    """One end of a ring, or both. At most one thread pushes and at most one pops, over all processes."""

    def __init__(self, buffer: Buffer) -> None:
        """The ring that `create` made in `buffer`, seen from here. UsageError if there is none."""
        memory = memoryview((ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address)).cast("B")
        magic, slots, room, newest_wins = (
            _HEADER.unpack_from(memory) if buffer.nbytes >= _SLOTS else (0, 0, 0, 0)
        )
        stride = _stride(room)
        if magic != _MAGIC or slots < 1 or _SLOTS + slots * stride > buffer.nbytes:
            raise UsageError(f"no ring begins at offset {buffer.offset} of the arena; Ring.create makes one")
        self.slots: int = slots
        self.room: int = room
        self.newest_wins = bool(newest_wins)
        self._stride: int = stride
        self._memory = memory
        self._words = memory[: buffer.nbytes // 8 * 8].cast("Q")
        self._bell = ctypes.c_uint32.from_address(buffer.address + _BELL)
        self._waiting = ctypes.c_uint32.from_address(buffer.address + _WAITING)

    @classmethod
    def create(cls, buffer: Buffer, *, room: int, newest_wins: bool = False) -> Ring:
        """Lays a ring out in a zeroed buffer: as many slots of `room` payload bytes as fit. With
        `newest_wins` a full ring gives its oldest event up for the new one, and never refuses."""
        slots = (buffer.nbytes - _SLOTS) // _stride(room) if room >= 0 else 0
        if slots < 1:
            raise UsageError(f"a ring with {room} bytes a slot doesn't fit in {buffer.nbytes} bytes")
        memory = (ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address)
        _HEADER.pack_into(memory, 0, _MAGIC, slots, room, newest_wins)
        return cls(buffer)

    @staticmethod
    def size(slots: int, room: int) -> int:
        """The bytes that a ring of `slots` slots needs."""
        return _SLOTS + slots * _stride(room)

    def push(self, timestamp_ns: int, payload: bytes | bytearray | memoryview, kind: int = 0) -> bool:
        """Adds an event; False if the ring is full, at once. UsageError if the payload exceeds a slot."""
        length = len(payload)
        if length > self.room:
            raise UsageError(f"a slot of this ring holds {self.room} bytes, the event has {length}")
        words = self._words
        sequence: int = words[_PUSHED]
        if not self.newest_wins and sequence - words[_POPPED] >= self.slots:
            words[_REFUSED] += 1
            return False
        at = self._place(sequence)
        stamp = sequence + 1
        check = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(stamp, timestamp_ns, kind, length)))
        words[at // 8] = 0
        _CONTENT.pack_into(self._memory, at + 8, timestamp_ns, kind, length, check, 0)
        start = at + _SLOT.size
        self._memory[start : start + length] = payload
        words[at // 8] = stamp
        words[_PUSHED] = stamp
        if self._waiting.value:
            self._bell.value = (self._bell.value + 1) & 0xFFFFFFFF
            futex.wake(self._bell)
        return True

    def pop(self) -> Event | None:
        """The oldest event; None if there is none, or it hasn't fully arrived."""
        words = self._words
        sequence: int = words[_POPPED]
        while True:
            pushed = words[_PUSHED]
            if pushed - sequence > self.slots:
                sequence = self._skip_to(pushed - self.slots)
            if sequence >= pushed:
                return None
            event = self._read(sequence)
            if event is not None:
                words[_POPPED] = sequence + 1
                return event
            if not self.newest_wins or words[_PUSHED] - sequence < self.slots:
                return None
            # The producer is writing over the oldest event, or died while it did.
            sequence = self._skip_to(sequence + 1)

    def _skip_to(self, sequence: int) -> int:
        self._words[_LOST] += sequence - self._words[_POPPED]
        self._words[_POPPED] = sequence
        return sequence

    def wait(self, timeout_ns: int) -> bool:
        """For a consumer with nothing else to do: waits until there is something to pop, `timeout_ns` at
        most; whether there is."""
        end = time.monotonic_ns() + timeout_ns
        self._waiting.value = 1
        try:
            while True:
                bell = self._bell.value
                left = end - time.monotonic_ns()
                if len(self) or left <= 0:
                    return len(self) > 0
                # Bounded, since the producer may have looked at `waiting` just before it was set.
                futex.wait(self._bell, bell, min(left, _LOOK_AGAIN_NS))
        finally:
            self._waiting.value = 0

    @property
    def counters(self) -> Counters:
        words = self._words
        return Counters(words[_PUSHED], words[_POPPED] - words[_LOST], words[_REFUSED], words[_LOST])

    def __len__(self) -> int:
        """Events in the ring, roughly while the other end is at work."""
        held: int = self._words[_PUSHED] - self._words[_POPPED]
        return max(0, min(self.slots, held))

    def _place(self, sequence: int) -> int:
        return _SLOTS + (sequence % self.slots) * self._stride

    def _read(self, sequence: int) -> Event | None:
        at = self._place(sequence)
        copy = self._memory[at : at + _SLOT.size].tobytes()
        stamp, timestamp_ns, kind, length, check, _ = _SLOT.unpack(copy)
        if stamp != sequence + 1 or length > self.room:
            return None
        payload = self._memory[at + _SLOT.size : at + _SLOT.size + length].tobytes()
        if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(stamp, timestamp_ns, kind, length))) != check:
            return None
        return Event(sequence, timestamp_ns, kind, payload)


def _stride(room: int) -> int:
    return -(-(_SLOT.size + room) // _LINE) * _LINE
