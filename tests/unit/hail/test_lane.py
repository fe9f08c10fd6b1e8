from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, UsageError
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import Lane, Lanes


@pytest.fixture
def gate(arena: Arena) -> Iterator[Gate]:
    with arena.lease(GRANULE, owner="gate") as lease:
        yield Gate(lease.buffer.address, 0)


def test_a_ticket_holds_the_gate_for_one_step(gate: Gate) -> None:
    lane = Lane("urgent", (0,), gate, wide=False)
    with lane.ticket(6, CancelToken()) as ticket:
        assert (ticket.lane, ticket.level, ticket.waited) == ("urgent", 6, 0)
        assert gate.active(0) == (6,)
    assert gate.active(0) == ()


def test_a_ticket_is_given_back_when_the_step_fails(gate: Gate) -> None:
    lane = Lane("best-effort", (0,), gate, wide=True)
    with pytest.raises(ZeroDivisionError), lane.ticket(6, CancelToken()):
        _ = 1 // 0
    assert gate.active(0) == ()


def test_a_cancelled_request_gets_no_ticket(gate: Gate) -> None:
    token = CancelToken()
    token.cancel()
    entered = False
    with pytest.raises(Cancelled), Lane("urgent", (0,), gate, wide=False).ticket(1, token):
        entered = True
    assert not entered


def test_cores_are_partitioned_a_quarter_for_urgent_work(gate: Gate) -> None:
    for cores, urgent in [((0, 1), 1), ((0, 1, 2, 3), 1), (tuple(range(12)), 3)]:
        lanes = Lanes.split(gate, cores=cores)
        assert lanes.urgent.cores == cores[:urgent]
        assert lanes.best_effort.cores == cores[urgent:]
        assert (lanes.urgent.threads, lanes.best_effort.threads) == (1, 1)


def test_partitioned_lanes_do_not_hold_each_other_up(gate: Gate) -> None:
    lanes = Lanes.split(gate, cores=(0, 1))
    with lanes.urgent.ticket(9, CancelToken()), lanes.best_effort.ticket(0, CancelToken()) as ticket:
        assert ticket.waited == 0


@pytest.mark.parametrize(("cores", "wide"), [((0, 1), True), ((3,), False)])
def test_wide_lanes_and_a_single_core_compete(gate: Gate, cores: tuple[int, ...], wide: bool) -> None:
    lanes = Lanes.split(gate, wide=wide, cores=cores)
    assert lanes.urgent.cores == lanes.best_effort.cores == cores
    assert lanes.best_effort.threads == len(cores)
    with lanes.urgent.ticket(9, CancelToken()):
        assert lanes.best_effort.gate.busy_above(8)


def test_by_default_the_cores_are_those_of_this_process(gate: Gate) -> None:
    lanes = Lanes.split(gate, wide=True)
    assert set(lanes.urgent.cores) == os.sched_getaffinity(0)


def test_pinning_moves_the_calling_thread_alone_and_as_often_as_asked(gate: Gate) -> None:
    mine = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def run() -> None:
        for core in sorted(mine):
            assert Lane("urgent", (core,), gate, wide=False).pin()
            seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [{core} for core in sorted(mine)]
    assert os.sched_getaffinity(0) == mine


def test_pinning_to_cores_that_do_not_exist_says_so(gate: Gate) -> None:
    mine = os.sched_getaffinity(0)
    assert not Lane("urgent", (1000,), gate, wide=False).pin()
    assert os.sched_getaffinity(0) == mine


def test_lanes_are_found_by_name(gate: Gate) -> None:
    lanes = Lanes.split(gate)
    assert lanes.of("urgent") is lanes.urgent
    assert lanes.of("best-effort") is lanes.best_effort
    with pytest.raises(UsageError):
        lanes.of("slow")
    with pytest.raises(UsageError):
        Lane("slow", (0,), gate, wide=False)
