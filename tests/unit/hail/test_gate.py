from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, UsageError
from hailmesh.hail.gate import ROWS, Domain, Gate

OTHER = """
import sys
from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.gate import Gate

fd, size, row, level = map(int, sys.argv[1:])
class Watched(CancelToken):
    checks = 0

    def check(self):
        self.checks += 1
        if self.checks == 2:
            print("waiting", flush=True)

with Arena.attach(fd, 0, size) as arena:
    gate = Gate(arena.address, row)
    for _ in sys.stdin:
        token = Watched()
        print("waited" if gate.enter(level, token) else "at once", flush=True)
        sys.stdin.readline()
        gate.leave(level)
        print("out", flush=True)
"""


@pytest.fixture
def page(arena: Arena) -> Iterator[int]:
    with arena.lease(GRANULE, owner="gate") as lease:
        yield lease.buffer.address


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread or process is about to do."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.0005)


class Watched(CancelToken):
    """Counts how often it was checked: the second time, its owner has been held up once."""

    checks = 0

    def check(self) -> None:
        self.checks += 1
        super().check()


class Entering(threading.Thread):
    """Enters the gate in a thread of its own; made, it waits there."""

    def __init__(self, gate: Gate, level: int) -> None:
        super().__init__()
        self.gate, self.level, self.token = gate, level, Watched()
        self.waited: float | None = None
        self.error: Exception | None = None
        self.start()
        until(lambda: self.token.checks >= 2 or not self.is_alive())

    def run(self) -> None:
        try:
            self.waited = self.gate.enter(self.level, self.token)
        except Exception as error:
            self.error = error


def test_an_open_gate_lets_through_at_once(page: int) -> None:
    gate = Gate(page, 0)
    assert gate.enter(3, CancelToken()) == 0
    assert gate.active(0) == (3,)
    gate.leave(3)
    assert gate.active(0) == ()


def test_equals_run_side_by_side(page: int) -> None:
    a, b = Gate(page, 0), Gate(page, 1)
    assert a.enter(5, CancelToken()) == b.enter(5, CancelToken()) == 0
    a.leave(5)
    b.leave(5)


def test_higher_work_never_waits_for_lower(page: int) -> None:
    low, high = Gate(page, 0), Gate(page, 1)
    low.enter(1, CancelToken())
    assert high.enter(2, CancelToken()) == 0
    high.leave(2)
    low.leave(1)


def test_lower_work_waits_until_all_higher_has_left(page: int) -> None:
    a, b, low = Gate(page, 0), Gate(page, 1), Gate(page, 2)
    a.enter(7, CancelToken())
    b.enter(31, CancelToken())
    thread = Entering(low, 0)
    assert low.active(2) == (0,)
    a.leave(7)
    assert thread.waited is None
    b.leave(31)
    thread.join()
    assert thread.waited is not None and thread.waited > 0
    low.leave(0)


def test_one_that_waits_itself_holds_up_lower_ones(page: int) -> None:
    top, middle, low = Gate(page, 0), Gate(page, 1), Gate(page, 2)
    top.enter(9, CancelToken())
    waiting = Entering(middle, 5)
    assert top.active(1) == (5,)
    assert low.busy_above(4)
    assert not low.busy_above(9)
    top.leave(9)
    waiting.join()
    assert low.busy_above(4)
    middle.leave(5)
    assert not low.busy_above(0)


def test_two_entries_of_one_level_are_counted(page: int) -> None:
    gate, other = Gate(page, 0), Gate(page, 1)
    gate.enter(4, CancelToken())
    gate.enter(4, CancelToken())
    gate.leave(4)
    assert other.busy_above(3)
    gate.leave(4)
    assert not other.busy_above(3)


def test_gates_of_one_row_in_one_process_are_one(page: int) -> None:
    first, second, other = Gate(page, 3), Gate(page, 3), Gate(page, 4)
    first.enter(4, CancelToken())
    second.enter(4, CancelToken())
    first.leave(4)
    assert other.busy_above(3)
    second.leave(4)
    assert not other.busy_above(3)


def test_a_cancelled_waiter_leaves_as_if_never_called(page: int) -> None:
    high, low = Gate(page, 0), Gate(page, 1)
    high.enter(5, CancelToken())
    thread = Entering(low, 2)
    assert low.active(1) == (2,)
    thread.token.cancel()
    thread.join()
    assert isinstance(thread.error, Cancelled)
    assert low.active(1) == ()
    high.leave(5)


def test_a_deadline_ends_the_wait(page: int) -> None:
    high, low = Gate(page, 0), Gate(page, 1)
    high.enter(5, CancelToken())
    with pytest.raises(DeadlineExceeded):
        low.enter(2, CancelToken(time.monotonic_ns() + 20_000_000))
    assert low.active(1) == ()
    high.leave(5)


def test_what_has_passed_its_latest_start_is_shed_not_started(page: int) -> None:
    gate = Gate(page, 0)
    now = time.monotonic_ns()
    with pytest.raises(DeadlineExceeded, match="latest start"):
        gate.enter(2, CancelToken(now + 60_000_000_000, latest_start_ns=now - 1))
    assert gate.active(0) == ()


def test_a_dead_process_is_cleared_by_the_supervisor(
    arena: Arena, page: int, start: Callable[..., Any]
) -> None:
    gate = Gate(page, 0)
    other = start(OTHER, arena.fd, arena.size, 1, 9, fds=(arena.fd,))
    other.say("enter")
    assert other.hear() == "at once"
    thread = Entering(gate, 1)
    assert gate.active(0) == (1,)
    other.kill()
    assert gate.active(1) == (9,)
    gate.clear_row(1)
    thread.join()
    assert thread.waited
    gate.leave(1)


def test_lower_work_waits_for_another_process(arena: Arena, page: int, start: Callable[..., Any]) -> None:
    gate = Gate(page, 0)
    other = start(OTHER, arena.fd, arena.size, 1, 9, fds=(arena.fd,))
    other.say("enter")
    assert other.hear() == "at once"
    thread = Entering(gate, 3)
    assert gate.active(0) == (3,)
    assert thread.waited is None
    other.say("leave")
    assert other.hear() == "out"
    thread.join()
    assert thread.waited
    gate.leave(3)


def test_another_process_waits_for_higher_work_here(
    arena: Arena, page: int, start: Callable[..., Any]
) -> None:
    gate = Gate(page, 0)
    gate.enter(20, CancelToken())
    other = start(OTHER, arena.fd, arena.size, 1, 9, fds=(arena.fd,))
    other.say("enter")
    assert other.hear() == "waiting"
    assert gate.active(1) == (9,)
    gate.leave(20)
    assert other.hear() == "waited"
    other.say("leave")
    assert other.hear() == "out"


def test_only_domains_that_share_cores_wait_for_one_another(page: int) -> None:
    shared = {
        (Domain.URGENT, Domain.URGENT),
        (Domain.WIDE, Domain.WIDE),
        (Domain.BEST_EFFORT, Domain.BEST_EFFORT),
        (Domain.WIDE, Domain.URGENT),
        (Domain.URGENT, Domain.WIDE),
        (Domain.WIDE, Domain.BEST_EFFORT),
        (Domain.BEST_EFFORT, Domain.WIDE),
    }
    gate, other = Gate(page, 0), Gate(page, 1)
    for ours, theirs in itertools.product(Domain, Domain):
        other.within(theirs).enter(9, CancelToken())
        assert gate.within(ours).busy_above(3) == ((ours, theirs) in shared)
        other.within(theirs).leave(9)


def test_every_row_and_level_has_a_bit_of_its_own(page: int) -> None:
    for row in (0, 1, ROWS - 1):
        for level in (0, 1, 30, 31):
            gate = Gate(page, row)
            gate.enter(level, CancelToken())
            assert [gate.active(other) for other in (0, 1, ROWS - 1)] == [
                (level,) if other == row else () for other in (0, 1, ROWS - 1)
            ]
            gate.leave(level)


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_row_beyond_the_page_is_refused(page: int, row: int) -> None:
    with pytest.raises(UsageError):
        Gate(page, row)


def test_a_bad_level_and_a_leave_too_many_are_refused(page: int) -> None:
    gate = Gate(page, 0)
    for level in (-1, 32):
        with pytest.raises(UsageError):
            gate.enter(level, CancelToken())
    with pytest.raises(UsageError, match="more often"):
        gate.leave(4)
    assert gate.active(0) == ()


def test_many_threads_leave_the_page_clean(page: int) -> None:
    gates = [Gate(page, row).within(domain) for row in range(2) for domain in Domain]

    def work(gate: Gate, level: int) -> None:
        for _ in range(100):
            gate.enter(level, CancelToken())
            gate.leave(level)

    threads = [
        threading.Thread(target=work, args=(gate, level))
        for gate, level in zip(gates, itertools.cycle((1, 5, 9)), strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Gate(page, 0).active(0) == Gate(page, 1).active(1) == ()
