from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import UsageError
from hailmesh.hail.ring import Counters, Event, Ring

PRODUCER = """
import sys, hashlib
from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.ring import Ring

fd, size, offset, nbytes, count = map(int, sys.argv[1:])
digest = hashlib.sha256()
with Arena.attach(fd, 0, size) as arena:
    ring = Ring(arena.view(offset, nbytes, DType.U8, (nbytes,)))
    for number in range(count):
        payload = number.to_bytes(4, "little") * (number % 33)
        digest.update(payload)
        while not ring.push(number * 10, payload, number % 5):
            pass
    print(digest.hexdigest(), flush=True)
"""


@pytest.fixture
def buffer(arena: Arena) -> Iterator[Buffer]:
    with arena.lease(GRANULE, owner="ring") as lease:
        yield lease.buffer


def small(buffer: Buffer, slots: int, room: int = 8, *, newest_wins: bool = False) -> Ring:
    nbytes = Ring.size(slots, room)
    ring = Ring.create(buffer.typed(DType.U8, (nbytes,)), room=room, newest_wins=newest_wins)
    assert ring.slots == slots
    return ring


def test_events_come_out_in_order_with_their_times(buffer: Buffer) -> None:
    ring = small(buffer, 4)
    assert ring.push(100, b"one", 7)
    assert ring.push(90, b"", 0)
    assert len(ring) == 2
    assert ring.pop() == Event(0, 100, 7, b"one")
    assert ring.pop() == Event(1, 90, 0, b"")
    assert ring.pop() is None


def test_a_full_ring_refuses_at_once_and_counts_it(buffer: Buffer) -> None:
    ring = small(buffer, 2)
    assert [ring.push(at, b"x") for at in range(3)] == [True, True, False]
    assert ring.counters == Counters(pushed=2, popped=0, refused=1, lost=0)
    assert ring.pop() == Event(0, 0, 0, b"x")
    assert ring.push(3, b"y")
    assert [ring.pop(), ring.pop()] == [Event(1, 1, 0, b"x"), Event(2, 3, 0, b"y")]


def test_it_wraps_around_many_times(buffer: Buffer) -> None:
    ring = small(buffer, 3)
    for number in range(100):
        assert ring.push(number, number.to_bytes(8, "little"))
        assert ring.pop() == Event(number, number, 0, number.to_bytes(8, "little"))


def test_the_newest_win_over_the_oldest_if_asked_for(buffer: Buffer) -> None:
    ring = small(buffer, 3, newest_wins=True)
    assert all(ring.push(at, bytes([at])) for at in range(8))
    assert [ring.pop() for _ in range(4)] == [*(Event(at, at, 0, bytes([at])) for at in (5, 6, 7)), None]
    assert ring.counters == Counters(pushed=8, popped=3, refused=0, lost=5)


def test_a_ring_is_attached_as_it_was_made(buffer: Buffer) -> None:
    small(buffer, 5, room=100, newest_wins=True).push(1, b"x")
    ring = Ring(buffer)
    assert (ring.slots, ring.room, ring.newest_wins) == (5, 100, True)
    assert ring.pop() == Event(0, 1, 0, b"x")


def test_it_fills_the_buffer_it_is_given(buffer: Buffer) -> None:
    ring = Ring.create(buffer, room=1000)
    assert Ring.size(ring.slots, 1000) <= buffer.nbytes < Ring.size(ring.slots + 1, 1000)
    assert all(ring.push(at, b"\xff" * 1000) for at in range(ring.slots))
    assert all(event is not None and event.payload == b"\xff" * 1000 for event in iter(ring.pop, None))


def test_what_is_no_ring_is_refused(buffer: Buffer) -> None:
    with pytest.raises(UsageError, match="no ring"):
        Ring(buffer)
    ring = small(buffer, 2)
    buffer.numpy()[4:8] = 255
    with pytest.raises(UsageError, match="no ring"):
        Ring(buffer)
    with pytest.raises(UsageError):
        ring.push(0, b"123456789")
    with pytest.raises(UsageError):
        Ring.create(buffer, room=GRANULE)


def test_an_event_that_has_not_fully_arrived_is_not_handed_out(buffer: Buffer) -> None:
    ring = small(buffer, 4)
    ring.push(5, b"payload")
    memory = buffer.numpy()
    for at in (192, 192 + 8, 192 + 20, 192 + 24, 192 + 32):
        memory[at] ^= 1
        assert ring.pop() is None, f"byte {at} is wrong"
        memory[at] ^= 1
    assert ring.pop() == Event(0, 5, 0, b"payload")


def test_a_producer_that_died_over_the_oldest_event_costs_that_event_alone(buffer: Buffer) -> None:
    ring = small(buffer, 3, newest_wins=True)
    for at in range(3):
        ring.push(at, b"x")
    buffer.numpy()[192:200] = 0
    assert ring.pop() == Event(1, 1, 0, b"x")
    assert ring.counters.lost == 1


def test_an_event_that_overtook_the_count_is_not_taken_for_the_older_one(buffer: Buffer) -> None:
    ring = small(buffer, 2, newest_wins=True)
    for at in range(3):
        ring.push(at, b"x")
    buffer.typed(DType.U64, (9,)).numpy()[8] = 2  # the count of pushed events has not arrived yet
    assert ring.pop() == Event(1, 1, 0, b"x")


def test_two_processes_share_a_ring(arena: Arena, buffer: Buffer, start: Callable[..., Any]) -> None:
    ring = small(buffer, 7, room=128)
    count = 3000
    other = start(PRODUCER, arena.fd, arena.size, buffer.offset, Ring.size(7, 128), count, fds=(arena.fd,))
    digest = hashlib.sha256()
    for number in range(count):
        while (event := ring.pop()) is None:
            ring.wait(1_000_000_000)
        assert (event.sequence, event.timestamp_ns, event.kind) == (number, number * 10, number % 5)
        digest.update(event.payload)
    assert other.hear() == digest.hexdigest()


def test_a_racing_reader_sees_only_whole_events_and_only_newer_ones(buffer: Buffer) -> None:
    ring = small(buffer, 2, room=64, newest_wins=True)
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            ring.push(number, number.to_bytes(8, "little") * 8)
            number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        last, seen = -1, 0
        while seen < 100:
            event = Ring(buffer).pop()
            if event is not None:
                assert event.sequence > last
                assert event.payload == event.sequence.to_bytes(8, "little") * 8
                last, seen = event.sequence, seen + 1
    finally:
        stop.set()
        thread.join()
    counters = ring.counters
    assert counters.popped == 100
    assert counters.popped + counters.lost + len(ring) == counters.pushed


def test_waiting_ends_when_an_event_comes(buffer: Buffer) -> None:
    ring = small(buffer, 2)
    assert not ring.wait(0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ring.wait(60_000_000_000)))
    thread.start()
    ring.push(time.monotonic_ns(), b"x")
    thread.join()
    assert answers == [True]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.booleans(), st.lists(st.one_of(st.none(), st.binary(max_size=16)), max_size=60))
def test_a_ring_behaves_as_a_bounded_queue(slots: int, newest_wins: bool, steps: list[bytes | None]) -> None:
    with Arena.create(GRANULE) as arena, arena.lease(GRANULE, owner="ring") as lease:
        ring = small(lease.buffer, slots, 16, newest_wins=newest_wins)
        queue: deque[Event] = deque()
        sequence = lost = refused = 0
        for payload in steps:
            if payload is None:
                assert ring.pop() == (queue.popleft() if queue else None)
            elif len(queue) == slots and not newest_wins:
                assert not ring.push(sequence, payload)
                refused += 1
            else:
                if len(queue) == slots:
                    queue.popleft()
                    lost += 1
                assert ring.push(sequence, payload)
                queue.append(Event(sequence, sequence, 0, payload))
                sequence += 1
        while queue:
            assert ring.pop() == queue.popleft()
        assert ring.counters == Counters(sequence, sequence - lost, refused, lost)
