from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import OutOfArena, UsageError

WORKER = """
import sys
import numpy as np
from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import DType

fd, offset, size, part = map(int, sys.argv[1:])
with Arena.attach(fd, offset, size) as arena:
    words = arena.view(part, 16, DType.I32, (4,)).numpy()
    with arena.lease(16, owner="unit", dtype=DType.I32, shape=(4,)) as lease:
        lease.buffer.numpy()[:] = words * 2
        print(lease.buffer.offset, flush=True)
        sys.stdin.readline()
    print(arena.count, flush=True)
"""


def test_two_processes_share_an_arena_by_its_descriptor(arena: Arena, start: Callable[..., Any]) -> None:
    with arena.span(1 << 20, owner="worker") as span, arena.lease(16, owner="r", dtype=DType.I32) as part:
        part.buffer.numpy()[:] = [1, 2, 3, 4]
        worker = start(
            WORKER, arena.fd, span.buffer.offset, span.buffer.nbytes, part.buffer.offset, fds=(arena.fd,)
        )
        offset = int(worker.hear())
        assert span.buffer.offset <= offset < span.buffer.offset + span.buffer.nbytes
        assert arena.view(offset, 16, DType.I32, (4,)).numpy().tolist() == [2, 4, 6, 8]
        worker.say("done")
        assert worker.hear() == "0"


def test_a_span_that_comes_back_is_whole_though_its_worker_died(
    arena: Arena, start: Callable[..., Any]
) -> None:
    with arena.span(1 << 20, owner="worker") as span, arena.lease(16, owner="r") as part:
        worker = start(
            WORKER, arena.fd, span.buffer.offset, span.buffer.nbytes, part.buffer.offset, fds=(arena.fd,)
        )
        worker.hear()
        worker.kill()
    assert (arena.count, arena.largest_free) == (0, arena.size)


def test_an_attached_arena_leases_within_its_span_alone(arena: Arena) -> None:
    with (
        arena.span(4 * GRANULE, owner="w") as span,
        Arena.attach(arena.fd, span.buffer.offset, span.buffer.nbytes) as worker,
    ):
        leases = [worker.lease(GRANULE, owner="u") for _ in range(4)]
        assert sorted(lease.buffer.offset for lease in leases) == [
            span.buffer.offset + GRANULE * at for at in range(4)
        ]
        with pytest.raises(OutOfArena):
            worker.lease(1, owner="u")
        for lease in leases:
            lease.release()
        assert worker.largest_free == 4 * GRANULE


def test_attaching_maps_the_same_bytes_at_another_address(arena: Arena) -> None:
    with (
        arena.span(GRANULE, owner="w") as span,
        Arena.attach(arena.fd, span.buffer.offset, GRANULE) as worker,
        worker.lease(4, owner="u", dtype=DType.F32) as lease,
    ):
        lease.buffer.numpy()[0] = 1.5
        assert worker.address != arena.address
        assert span.buffer.numpy()[:4].view(np.float32)[0] == 1.5


def test_the_descriptor_stays_the_callers(arena: Arena) -> None:
    fd = os.dup(arena.fd)
    with arena.span(GRANULE, owner="w") as span:
        Arena.attach(fd, span.buffer.offset, GRANULE).close()
    os.close(fd)


@pytest.mark.parametrize(
    ("offset", "size"), [(1, GRANULE), (0, GRANULE - 1), (0, 0), (-GRANULE, GRANULE), (16 << 20, GRANULE)]
)
def test_a_range_outside_the_memfd_is_refused(arena: Arena, offset: int, size: int) -> None:
    with pytest.raises(UsageError, match="whole granules"):
        Arena.attach(arena.fd, offset, size)


def test_a_memfd_that_could_shrink_is_refused() -> None:
    fd = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, GRANULE)
        with pytest.raises(UsageError, match="sealed"):
            Arena.attach(fd, 0, GRANULE)
    finally:
        os.close(fd)
