from __future__ import annotations

import pytest

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import OutOfArena, UsageError
from hailmesh.hail.slab import Slab


def test_blocks_share_a_granule_and_never_overlap(arena: Arena) -> None:
    slab = Slab(arena, 640, owner="asr")
    blocks = [slab.lease(DType.I16, (320,)) for _ in range(102)]
    assert arena.used == GRANULE
    for mark, block in enumerate(blocks):
        block.buffer.numpy()[:] = mark
    assert all((block.buffer.numpy() == mark).all() for mark, block in enumerate(blocks))
    assert len({block.buffer.offset for block in blocks}) == 102
    slab.close()


def test_a_run_is_leased_when_needed_and_given_back_when_empty(arena: Arena) -> None:
    slab = Slab(arena, GRANULE // 2, owner="asr")
    blocks = [slab.lease() for _ in range(5)]
    assert (slab.count, arena.count) == (5, 3)
    for block in blocks:
        block.release()
        block.release()
    assert (slab.count, arena.count) == (0, 1), "one empty run is kept"
    slab.close()
    assert arena.count == 0


def test_a_block_is_zeroed_whole(arena: Arena) -> None:
    slab = Slab(arena, 100, owner="asr")
    with slab.lease() as first:
        first.buffer.numpy()[:] = 255
        assert first.buffer.nbytes == 128
    with slab.lease(DType.U8, (3,)) as second:
        assert second.buffer.offset == first.buffer.offset
        assert not arena.view(second.buffer.offset, 128, DType.U8, (128,)).numpy().any()
    slab.close()


def test_blocks_are_not_mappable(arena: Arena) -> None:
    slab = Slab(arena, 64, owner="asr")
    with slab.lease() as block:
        assert not block.buffer.mappable
        assert not block.buffer.typed(DType.F32, (4,)).mappable
    slab.close()


def test_what_is_too_large_is_refused(arena: Arena) -> None:
    slab = Slab(arena, 64, owner="asr")
    with pytest.raises(UsageError):
        slab.lease(DType.F32, (17,))
    for block in (0, -1, GRANULE):
        with pytest.raises(UsageError):
            Slab(arena, block, owner="asr")


def test_a_slab_is_under_its_owners_quota(arena: Arena) -> None:
    arena.set_quota("asr", GRANULE)
    slab = Slab(arena, GRANULE // 2, owner="asr")
    held = [slab.lease(), slab.lease()]
    with pytest.raises(OutOfArena, match="quota of 'asr'"):
        slab.lease()
    held.pop().release()
    slab.lease()
    slab.close()


def test_releasing_a_block_after_the_slab_closed_harms_nothing(arena: Arena) -> None:
    slab = Slab(arena, 64, owner="asr")
    block = slab.lease()
    slab.close()
    block.release()
    assert arena.count == 0
