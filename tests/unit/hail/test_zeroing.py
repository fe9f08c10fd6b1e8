from __future__ import annotations

import os

import pytest

from hailmesh.hail import memfd
from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.memfd import LAZY_FROM

SIZES = [1, GRANULE - 1, GRANULE, 3 * GRANULE + 17, LAZY_FROM, LAZY_FROM + GRANULE, 3 << 20]


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_block_is_zero_to_the_end_of_its_last_granule(arena: Arena, nbytes: int) -> None:
    with arena.lease(nbytes, owner="a") as first:
        first_block = arena.view(first.buffer.offset, first.room, first.buffer.dtype, (first.room,))
        first_block.numpy()[:] = 0xAB
    with arena.lease(nbytes, owner="b") as second:
        assert second.buffer.offset == first.buffer.offset
        assert not first_block.numpy().any()


@pytest.mark.parametrize("nbytes", SIZES)
def test_zeroing_leaves_the_neighbours_alone(arena: Arena, nbytes: int) -> None:
    before, middle, after = (arena.lease(size, owner="a") for size in (GRANULE, nbytes, GRANULE))
    before.buffer.numpy()[:] = 1
    after.buffer.numpy()[:] = 2
    middle.buffer.numpy()[:] = 3
    middle.release()
    with arena.lease(nbytes, owner="a") as again:
        assert again.buffer.offset == middle.buffer.offset
        assert (before.buffer.numpy() == 1).all()
        assert (after.buffer.numpy() == 2).all()
    before.release()
    after.release()


def test_a_large_block_with_few_pages_is_zeroed_and_stays_lazy(arena: Arena) -> None:
    nbytes = 4 << 20
    with arena.lease(nbytes, owner="a") as first:
        pages = first.buffer.numpy()
        pages[4096 * 10] = pages[4096 * 500] = pages[-1] = 1
    with arena.lease(nbytes, owner="b") as second:
        assert not second.buffer.numpy()[::4096].any() and not second.buffer.numpy()[-1]
    # Reading a hole through a shared mapping makes a page, so residency is looked at in a block of its own.
    arena.trim()
    with arena.lease(nbytes, owner="a") as third:
        third.buffer.numpy()[0] = 1
    with arena.lease(nbytes, owner="b"):
        assert arena.report().resident == 4096 * (os.sysconf("SC_PAGE_SIZE") // 4096)


def test_a_block_with_many_scattered_pages_is_zeroed(arena: Arena) -> None:
    nbytes = 4 << 20
    with arena.lease(nbytes, owner="a") as first:
        first.buffer.numpy()[:: os.sysconf("SC_PAGE_SIZE") * 2] = 7
    with arena.lease(nbytes, owner="b") as second:
        assert not second.buffer.numpy().any()


def test_a_span_is_zero_when_its_next_owner_gets_it(arena: Arena) -> None:
    with arena.span(GRANULE, owner="w") as span:
        span.buffer.numpy()[:] = 5
    with arena.span(GRANULE, owner="w") as again:
        assert not again.buffer.numpy().any()


def test_an_unsealed_file_is_no_arena() -> None:
    fd = os.memfd_create("loose")
    try:
        os.ftruncate(fd, GRANULE)
        assert not memfd.sealed(fd)
    finally:
        os.close(fd)
