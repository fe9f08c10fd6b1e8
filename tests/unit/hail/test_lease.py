from __future__ import annotations

import gc
import threading

import pytest

from hailmesh.hail.arena import GRANULE, Arena, Lease
from hailmesh.hail.errors import NotFound
from hailmesh.hail.handles import generation


def test_a_handle_resolves_while_the_lease_lives(arena: Arena) -> None:
    with arena.lease(1, owner="a") as lease:
        assert arena.resolve(lease.handle) is lease
        assert generation(lease.handle) == lease.buffer.generation
    with pytest.raises(NotFound):
        arena.resolve(lease.handle)


def test_a_stale_handle_is_an_error_though_its_place_is_used_again(arena: Arena) -> None:
    first = arena.lease(1, owner="a")
    first.release()
    with arena.lease(1, owner="a") as second:
        assert second.buffer.offset == first.buffer.offset
        assert second.buffer.generation == first.buffer.generation + 1
        with pytest.raises(NotFound):
            arena.resolve(first.handle)
        assert arena.resolve(second.handle) is second


@pytest.mark.parametrize("handle", [-1, 0, 1, 7, 1 << 24, 1 << 60])
def test_a_made_up_handle_is_an_error(arena: Arena, handle: int) -> None:
    with pytest.raises(NotFound):
        arena.resolve(handle)


def test_release_is_idempotent(arena: Arena) -> None:
    lease = arena.lease(1, owner="a")
    lease.release()
    lease.release()
    with arena.lease(1, owner="a"):
        lease.release()
        assert arena.count == 1


def test_two_threads_that_release_one_lease_give_it_back_once(arena: Arena) -> None:
    for _ in range(50):
        lease = arena.lease(1, owner="a")
        barrier = threading.Barrier(4)

        def release(lease: Lease = lease, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            lease.release()

        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (arena.count, arena.free) == (0, arena.size)


def test_freezing_is_for_good(arena: Arena) -> None:
    with arena.lease(1, owner="a") as lease:
        assert not lease.frozen
        lease.freeze()
        lease.freeze()
        assert lease.frozen


def test_a_forgotten_lease_warns_and_comes_back(arena: Arena) -> None:
    lease = arena.lease(GRANULE, owner="vision")
    with pytest.warns(ResourceWarning, match="'vision' was never released"):
        del lease
        gc.collect()
    assert arena.count == 0


def test_a_quarantined_block_waits_for_its_writer(arena: Arena) -> None:
    done = threading.Event()
    lease = arena.lease(GRANULE, owner="a")
    lease.quarantine(done)
    lease.release()
    assert (arena.count, arena.report().quarantined, arena.used) == (1, 1, GRANULE)
    with pytest.raises(NotFound):
        arena.resolve(lease.handle)
    with arena.lease(1, owner="b") as other:
        assert other.buffer.offset != lease.buffer.offset
    done.set()
    assert (arena.count, arena.used) == (0, 0)


def test_quarantine_takes_a_function_and_an_error_in_it_means_not_yet(arena: Arena) -> None:
    state: list[object] = [False]

    def done() -> bool:
        if isinstance(state[0], Exception):
            raise state[0]
        return bool(state[0])

    lease = arena.lease(1, owner="a")
    lease.quarantine(done)
    lease.release()
    assert arena.count == 1
    state[0] = ValueError("lost touch")
    assert arena.count == 1
    state[0] = True
    assert arena.count == 0


def test_what_the_late_writer_left_is_zeroed_for_the_next(arena: Arena) -> None:
    done = threading.Event()
    lease = arena.lease(GRANULE, owner="a")
    late = lease.buffer.numpy()
    lease.quarantine(done)
    lease.release()
    late[:] = 9
    done.set()
    with arena.lease(GRANULE, owner="b") as other:
        assert other.buffer.offset == lease.buffer.offset
        assert not other.buffer.numpy().any()


def test_a_lease_in_a_quarantine_that_is_over_comes_back_at_once(arena: Arena) -> None:
    with arena.lease(1, owner="a") as lease:
        lease.quarantine(lambda: True)
    assert arena.count == 0
