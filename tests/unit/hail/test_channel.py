from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.channel import CHUNK, Channel
from hailmesh.hail.errors import Cancelled, UsageError


@pytest.fixture
def channel() -> Iterator[Channel]:
    with Channel() as channel:
        yield channel


def test_a_copy_is_done_when_its_event_says_so(arena: Arena, channel: Channel) -> None:
    nbytes = 3 * CHUNK + 17
    with arena.lease(nbytes, owner="a") as source, arena.lease(nbytes, owner="a") as target:
        source.buffer.numpy()[:] = np.arange(nbytes) % 251
        copy = channel.copy([source.buffer], [target.buffer], captured_ns=123)
        assert copy.wait()
        copy.check()
        assert copy.captured_ns == 123
        assert (source.buffer.numpy() == target.buffer.numpy()).all()


def test_the_time_of_capture_is_now_unless_given(arena: Arena, channel: Channel) -> None:
    with arena.lease(8, owner="a") as lease:
        before = time.monotonic_ns()
        copy = channel.copy([lease.buffer], [lease.buffer])
        copy.wait()
        assert before <= copy.captured_ns <= copy.finished_ns


def test_totals_that_differ_are_refused(arena: Arena, channel: Channel) -> None:
    with arena.lease(8, owner="a") as a, arena.lease(9, owner="a") as b, pytest.raises(UsageError, match="8"):
        channel.copy([a.buffer], [b.buffer])


def test_nothing_to_copy_is_done_too(channel: Channel) -> None:
    copy = channel.copy([], [])
    assert copy.wait()
    copy.check()


def test_a_lease_in_quarantine_waits_for_its_copy(arena: Arena, channel: Channel) -> None:
    with arena.lease(4 * CHUNK, owner="a") as source:
        target = arena.lease(4 * CHUNK, owner="a")
        copy = channel.copy([source.buffer], [target.buffer])
        target.quarantine(copy.done)
        target.release()
        copy.wait()
        assert arena.count == 1


def test_closing_cancels_what_is_not_done(arena: Arena) -> None:
    channel = Channel()
    with arena.lease(4 * CHUNK, owner="a") as a, arena.lease(4 * CHUNK, owner="a") as b:
        copies = [channel.copy([a.buffer], [b.buffer]) for _ in range(50)]
        channel.close()
        assert all(copy.done() for copy in copies)
        with pytest.raises(Cancelled):
            copies[-1].check()
        with pytest.raises(Cancelled):
            channel.copy([a.buffer], [b.buffer])


def cut(whole: Buffer, sizes: list[int]) -> list[Buffer]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(Buffer(whole.offset + at, whole.address + at, size, DType.U8, (size,)))
        at += size
    return pieces


sizes = st.lists(st.integers(0, 40), max_size=8)


@settings(max_examples=50, deadline=None)
@given(sizes, sizes)
def test_bytes_are_gathered_and_scattered_in_order(read: list[int], written: list[int]) -> None:
    total = max(sum(read), sum(written))
    read, written = [*read, total - sum(read)], [*written, total - sum(written)]
    with (
        Channel() as channel,
        Arena.create(1 << 20) as arena,
        arena.lease(total, owner="a") as a,
        arena.lease(total, owner="a") as b,
    ):
        a.buffer.numpy()[:] = np.arange(total) % 256
        copy = channel.copy(cut(a.buffer, read), cut(b.buffer, written))
        copy.wait()
        copy.check()
        assert (b.buffer.numpy() == a.buffer.numpy()).all()
