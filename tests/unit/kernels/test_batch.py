"""What a sequence engine's next step is made of, and whom it waits for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, DeviceError
from hailmesh.kernels.batch import Batch, Board
from hailmesh.kernels.seat import Seat, Work
from hailmesh.kernels.slots import Slots


class Moves:
    """Stands in for the keys and values: notes what is moved."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int, int]] = []

    def move(self, source: int, target: int, length: int) -> None:
        self.made.append((source, target, length))


class Table:
    """A board, with sequences seated as a test wants them."""

    def __init__(self, batched: bool = True, chunk: int | None = None) -> None:
        self.lock = threading.Lock()
        self.slots, self.kv = Slots(8, self.lock), Moves()
        self.board = Board(self.slots, self.kv, 100, chunk, batched)

    def seat(self, length: int, level: int = 3) -> Seat:
        seat = Seat(self.slots.take(CancelToken(), level), 100, level, np.zeros(50, np.float32), length)
        self.slots.seated[seat.slot] = seat
        return seat

    def leave(self, seat: Seat) -> None:
        with self.lock:
            del self.slots.seated[seat.slot]
            self.slots.give(seat.slot)

    def want(self, seat: Seat, *ids: int, token: CancelToken | None = None) -> Work:
        work = Work(np.array(ids, np.int64), token or CancelToken(), seat.woken)
        seat.late = False
        self.board.pending[seat] = work
        return work

    def step(self, error: Any = None, took: float = 0.02) -> Batch:
        with self.lock:
            batch = self.board.begin()
            assert batch is not None
            self.board.settle(batch, error, took)
        return batch


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_shared_step_has_a_row_for_each_slot_from_the_first_member_to_the_last(table: Table) -> None:
    first, idle, last = table.seat(5), table.seat(7), table.seat(9)
    works = table.want(first, 11), table.want(last, 12)
    assert table.step().rows == ((11, 5), (0, 7), (12, 9))
    assert (first.length, idle.length, last.length) == (6, 7, 10)
    assert all(work.done and work.error is None for work in works)


def test_a_full_sequence_rides_on_its_last_row(table: Table) -> None:
    first, full, last = table.seat(5), table.seat(100), table.seat(9)
    table.want(first, 11)
    table.want(last, 12)
    assert table.step().rows[1] == (0, 99)
    assert full.length == 100


def test_a_failed_step_ends_its_members_work_and_counts_nothing(table: Table) -> None:
    first, other = table.seat(5), table.seat(7)
    failed = table.want(first, 11)
    error = DeviceError("broken")
    table.step(error)
    assert failed.error is error
    assert first.length == 5
    table.want(other, 12)
    table.step()
    assert other.length == 8


def test_a_prompt_is_cut_into_small_chunks_only_while_others_decode(table: Table) -> None:
    writer, newcomer = table.seat(5), table.seat(0)
    table.want(writer, 1)
    table.step()
    work = table.want(newcomer, *range(40))
    assert table.step().step.chunk == 8
    assert (newcomer.length, len(work.ids), work.done) == (8, 32, False)
    for _ in range(2):
        table.step()
    table.leave(writer)
    assert table.step().step.chunk == 16, "all that is left"
    assert work.done


def test_a_fixed_chunk_is_kept_to() -> None:
    table = Table(chunk=3)
    sequence = table.seat(0)
    table.want(sequence, *range(7))
    assert [table.step().step.chunk for _ in range(3)] == [3, 3, 1]


def test_those_of_the_last_steps_are_awaited_until_they_come_or_are_late(table: Table) -> None:
    first, second = table.seat(5), table.seat(7)
    table.want(first, 1)
    table.want(second, 2)
    assert table.board.awaited() == []
    table.step()
    table.want(first, 3)
    assert table.board.awaited() == [second]
    second.late = True
    assert table.board.awaited() == []
    table.want(second, 4)
    assert table.board.awaited() == []
    assert not second.late


def test_who_took_no_part_lately_is_not_awaited(table: Table) -> None:
    first, second = table.seat(5), table.seat(7)
    table.want(first, 1)
    table.want(second, 2)
    table.step()
    for _ in range(3):
        table.want(first, 1)
        table.step()
    table.want(first, 1)
    assert table.board.awaited() == []


def test_the_urgent_do_not_wait_for_the_less_urgent(table: Table) -> None:
    urgent, other = table.seat(5, level=9), table.seat(7, level=3)
    table.want(urgent, 1)
    table.want(other, 2)
    table.step()
    table.want(urgent, 3)
    assert table.board.awaited() == []
    table.step()
    table.want(other, 4)
    assert table.board.awaited() == [urgent]


def test_without_batches_nobody_is_awaited() -> None:
    table = Table(batched=False)
    first, second = table.seat(5), table.seat(7)
    table.want(first, 1)
    table.want(second, 2)
    table.step()
    assert table.board.awaited() == []


def test_patience_is_a_share_of_a_token_s_time_and_bounded(table: Table) -> None:
    sequence = table.seat(5)
    table.want(sequence, 1)
    table.step(took=0.02)
    assert table.board.patience == pytest.approx(0.004)
    table.want(sequence, *range(20))
    table.step(took=3.0)
    assert table.board.patience == pytest.approx(0.004), "a prompt's chunk says nothing about tokens"
    table.board.pending.clear()
    table.want(sequence, 1)
    table.step(took=3.0)
    assert table.board.patience == pytest.approx(0.010)


def test_a_gap_is_closed_by_moving_the_last_who_has_enough_to_say(table: Table) -> None:
    first, gone, last = table.seat(5), table.seat(7), table.seat(9)
    table.leave(gone)
    table.want(first, 1)
    table.want(last, 2)
    assert table.step().rows == ((1, 5), (2, 9))
    assert table.kv.made == [(2, 1, 9)]
    assert last.slot == 1
    assert table.seat(0).slot == 2


def test_who_is_nearly_done_is_not_moved(table: Table) -> None:
    first, gone, last = table.seat(5), table.seat(7), table.seat(97)
    table.leave(gone)
    table.want(first, 1)
    table.want(last, 2)
    assert table.step().rows == ((1, 5), (0, 0), (2, 97))
    assert table.kv.made == []


def test_what_is_over_is_shed_before_a_step(table: Table) -> None:
    tokens = CancelToken(), CancelToken(1), CancelToken(latest_start_ns=1)
    tokens[0].cancel()
    works = [table.want(table.seat(5), 1, token=token) for token in tokens]
    alive = table.seat(7)
    table.want(alive, 2)
    assert table.step().members == (alive,)
    assert [type(work.error) for work in works] == [Cancelled, DeadlineExceeded, DeadlineExceeded]
    assert table.board.begin() is None
