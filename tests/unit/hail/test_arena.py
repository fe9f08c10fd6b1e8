from __future__ import annotations

import fcntl
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hailmesh.hail.arena import GRANULE, Arena, Stage
from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import OutOfArena, UsageError


def test_a_lease_is_a_view_of_the_memfd(arena: Arena) -> None:
    with arena.lease(24, owner="a", dtype=DType.F32, shape=(2, 3)) as lease:
        lease.buffer.numpy()[:] = [[1, 2, 3], [4, 5, 6]]
        content = os.pread(arena.fd, 24, lease.buffer.offset)
        assert np.frombuffer(content, np.float32).tolist() == [1, 2, 3, 4, 5, 6]
        assert lease.buffer.address == arena.address + lease.buffer.offset


def test_the_memfd_can_neither_shrink_nor_grow(arena: Arena) -> None:
    seals = fcntl.fcntl(arena.fd, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_SHRINK and seals & fcntl.F_SEAL_GROW
    for size in (arena.size - GRANULE, arena.size + GRANULE):
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, size)


def test_leases_are_whole_granules_apart(arena: Arena) -> None:
    with arena.lease(1, owner="a") as a, arena.lease(GRANULE + 1, owner="a") as b:
        assert (a.buffer.offset, b.buffer.offset) == (0, GRANULE)
        assert (a.room, b.room) == (GRANULE, 2 * GRANULE)
        assert arena.used == 3 * GRANULE
        assert (a.buffer.nbytes, b.buffer.nbytes) == (1, GRANULE + 1)


def test_an_empty_tensor_can_be_leased(arena: Arena) -> None:
    with arena.lease(0, owner="a", dtype=DType.F32, shape=(0, 4)) as lease:
        assert lease.buffer.numpy().shape == (0, 4)


def test_without_a_shape_it_is_one_dimension(arena: Arena) -> None:
    with arena.lease(18, owner="a", dtype=DType.I32) as lease:
        assert lease.buffer.shape == (4,)
        assert lease.buffer.numpy().dtype == np.int32


@pytest.mark.parametrize(("nbytes", "shape"), [(-1, None), (11, (3,))])
def test_a_shape_that_exceeds_the_bytes_is_refused(
    arena: Arena, nbytes: int, shape: tuple[int, ...] | None
) -> None:
    with pytest.raises(UsageError):
        arena.lease(nbytes, owner="a", dtype=DType.F32, shape=shape)


def test_out_of_arena_tells_what_was_asked_and_what_there_is() -> None:
    with Arena.create(4 * GRANULE) as arena, arena.lease(GRANULE, owner="a"):
        with pytest.raises(OutOfArena) as caught:
            arena.lease(4 * GRANULE, owner="vision")
        for figure in ("'vision'", str(4 * GRANULE), str(3 * GRANULE)):
            assert figure in str(caught.value)
        assert arena.count == 1


def test_a_quota_bounds_one_owner_alone(arena: Arena) -> None:
    arena.set_quota("a", 2 * GRANULE)
    with arena.lease(GRANULE, owner="a"):
        with pytest.raises(OutOfArena, match=f"quota of 'a' is {2 * GRANULE} bytes, {GRANULE} used"):
            arena.lease(GRANULE + 1, owner="a")
        arena.lease(3 * GRANULE, owner="b").release()
        arena.lease(GRANULE, owner="a").release()
    arena.set_quota("a", None)
    arena.lease(3 * GRANULE, owner="a").release()


def test_a_quota_bounds_a_modality_over_all_owners(arena: Arena) -> None:
    arena.set_modality_quota("speech", GRANULE)
    with arena.lease(1, owner="a", modality="speech"):
        with pytest.raises(OutOfArena, match="modality quota of 'speech'"):
            arena.lease(1, owner="b", modality="speech")
        arena.lease(1, owner="b", modality="vision").release()


def test_spans_leave_the_burst_share_to_leases() -> None:
    with Arena.create(10 * GRANULE, burst=0.3) as arena, arena.span(7 * GRANULE, owner="worker"):
        with pytest.raises(OutOfArena, match="spans may take"):
            arena.span(GRANULE, owner="worker")
        arena.lease(3 * GRANULE, owner="request").release()


def test_a_released_span_makes_room_for_the_next() -> None:
    with Arena.create(10 * GRANULE) as arena:
        for _ in range(3):
            arena.span(8 * GRANULE, owner="worker").release()
        assert arena.largest_free == arena.size


def test_spans_lie_at_the_end_away_from_leases(arena: Arena) -> None:
    with arena.span(GRANULE, owner="w") as span, arena.lease(1, owner="r") as lease:
        assert span.buffer.offset == arena.size - GRANULE
        assert lease.buffer.offset == 0


def test_fragmentation_is_what_the_largest_block_lacks() -> None:
    with Arena.create(4 * GRANULE) as arena:
        a, b, c = (arena.lease(1, owner="x") for _ in range(3))
        assert arena.fragmentation == 0
        a.release()
        assert (arena.free, arena.largest_free, arena.fragmentation) == (2 * GRANULE, GRANULE, 0.5)
        b.release()
        assert arena.fragmentation == pytest.approx(1 / 3)
        c.release()
        assert arena.fragmentation == 0


def test_a_full_arena_is_not_fragmented() -> None:
    with Arena.create(GRANULE) as arena, arena.lease(1, owner="x"):
        assert arena.fragmentation == 0


def test_view_reaches_the_whole_memfd_and_no_further(arena: Arena) -> None:
    with arena.lease(8, owner="a", dtype=DType.I64) as lease:
        lease.buffer.numpy()[0] = 42
        assert arena.view(lease.buffer.offset, 8, DType.I64, (1,)).numpy()[0] == 42
    arena.view(arena.size - 1, 1, DType.U8, (1,))
    for offset, nbytes, shape in [(-1, 1, (1,)), (arena.size, 1, (1,)), (0, 4, (5,)), (0, 4, (-1,))]:
        with pytest.raises(UsageError):
            arena.view(offset, nbytes, DType.U8, shape)


def test_the_report_counts_by_stage_owner_and_modality(arena: Arena) -> None:
    with arena.lease(GRANULE, owner="a", modality="image") as first, arena.lease(1, owner="b"):
        first.stage = Stage.INFER
        assert first.stage is Stage.INFER
        report = arena.report()
        assert report.stages[Stage.INFER].used == GRANULE
        assert report.stages[Stage.CAPTURE].used == GRANULE
        assert report.stages[Stage.CAPTURE].peak == 2 * GRANULE
        assert {owner: usage.used for owner, usage in report.owners.items()} == {"a": GRANULE, "b": GRANULE}
        assert report.modalities["image"].leases == 1
        assert (report.used, report.free) == (2 * GRANULE, arena.size - 2 * GRANULE)
    after = arena.report()
    assert (after.used, after.peak_used, after.count) == (0, 2 * GRANULE, 0)
    assert all(usage.used == 0 for usage in after.stages.values())


def test_redundancy_is_what_outlives_its_last_reader(arena: Arena) -> None:
    with arena.lease(3 * GRANULE, owner="a") as lease:
        assert arena.report().redundant == 0
        lease.read_done()
        lease.read_done()
        lease.stage = Stage.RELEASE
        report = arena.report()
        assert report.redundant == 3 * GRANULE
        assert report.stages[Stage.RELEASE].redundant == 3 * GRANULE
        assert report.stages[Stage.CAPTURE].redundant == 0
    after = arena.report()
    assert after.redundant == 0
    assert after.redundancy > 0


def test_resident_counts_pages_and_trim_gives_them_back(arena: Arena) -> None:
    with arena.lease(4 << 20, owner="a") as lease:
        assert arena.report().resident == 0, "leasing touches nothing"
        lease.buffer.numpy()[:] = 1
    assert arena.report().resident == 4 << 20
    arena.trim()
    report = arena.report()
    assert (report.resident, report.peak_resident) == (0, 4 << 20)


def test_closing_waits_for_the_last_lease() -> None:
    arena = Arena.create(GRANULE)
    lease = arena.lease(4, owner="a")
    arena.close()
    with pytest.raises(UsageError, match="closed"):
        arena.lease(1, owner="a")
    lease.buffer.numpy()[:] = 1
    lease.release()
    assert arena.fd == -1
    arena.close()


def test_threads_share_an_arena(arena: Arena) -> None:
    errors: list[str] = []

    def work(mark: int) -> None:
        for size in range(1, 120):
            with arena.lease(size * 700, owner=f"thread {mark}") as lease:
                view = lease.buffer.numpy()
                if view.any():
                    errors.append("not zeroed")
                view[:] = mark
                if not (view == mark).all():
                    errors.append("somebody else wrote")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5 * GRANULE), st.integers(0, 50)), min_size=1, max_size=40
    )
)
def test_blocks_never_overlap_and_all_come_back(steps: list[tuple[bool, int, int]]) -> None:
    with Arena.create(24 * GRANULE) as arena:
        live = []
        for take, nbytes, which in steps:
            if take:
                largest, free = arena.largest_free, arena.free
                try:
                    lease = arena.lease(nbytes, owner="x")
                except OutOfArena:
                    assert nbytes > largest
                    continue
                mark = len(live) % 255 + 1
                assert not lease.buffer.numpy().any()
                lease.buffer.numpy()[:] = mark
                live.append((lease, mark))
                assert arena.free == free - lease.room
            elif live:
                live.pop(which % len(live))[0].release()
            assert all((lease.buffer.numpy() == mark).all() for lease, mark in live)
            assert arena.count == len(live)
        for lease, _ in live:
            lease.release()
        assert (arena.count, arena.largest_free) == (0, arena.size)
