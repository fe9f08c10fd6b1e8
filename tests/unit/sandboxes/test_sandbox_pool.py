"""The pool: slots, cancellation, streamed parts, slow readers, sessions, draining."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hailmesh.hail.arena import GRANULE
from hailmesh.hail.buffer import DType
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import Lane
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.pool import Pool, State
from hailmesh.sandboxes.run import EMIT_WINDOW

SPIN = "(loop $forever (br $forever)) (i32.const 0)"


class Ended:
    """Waits for the ends of runs."""

    def __init__(self, box: Any) -> None:
        self._ends = threading.Semaphore(0)
        self._sink = box.sink
        box.sink.on_end = self._ends.release

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._ends.acquire(timeout=60), "a run didn't end"

    @property
    def codes(self) -> list[str]:
        return [error.code for error in self._sink.errors]

    @property
    def replies(self) -> list[bytes]:
        return [run.reply for run in self._sink.replies]


@pytest.fixture
def ended(box: Any) -> Ended:
    return Ended(box)


@pytest.fixture
def pool(box: Any, ended: Ended) -> Iterator[Callable[..., Pool]]:
    """Makes pools of a module; all are stopped at the end, and must leave no lease behind."""
    made: list[Pool] = []
    with box.arena.lease(GRANULE, owner="gate") as page:
        lane = Lane("best-effort", (), Gate(page.buffer.address, 1), True)

        def make(wasm: bytes, slots: int = 2, session_lived: bool = False) -> Pool:
            made.append(Pool(box.unit, LinkedModule(wasm), lane, slots=slots, session_lived=session_lived))
            return made[-1]

        yield make
        for each in made:
            each.stop()
            assert each.state is State.RETIRED


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(0.002)


def test_jobs_are_answered_by_the_slots(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(guest.results("(i32.load8_u (call $part_map (i32.const 0)))"))
    for number in range(20):
        made.run(box.job(box.part(bytes([number])), id=f"job-{number}"), box.sink)
    ended.wait(20)
    assert sorted(struct.unpack("<i", reply)[0] for reply in ended.replies) == list(range(20))
    assert made.inside == 0


def test_a_job_that_waited_past_its_deadline_is_not_started(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    made = pool(guest.wasm(f"(drop (call $emit {guest.text('started')}))" + SPIN), slots=1)
    made.run(box.job(id="first", seconds=0.2), box.sink)
    made.run(box.job(id="second", seconds=0.1), box.sink)
    ended.wait(2)
    assert ended.codes == ["deadline_exceeded"] * 2
    assert box.sink.chunks == [b"started"]


def test_cancelling_a_job_frees_its_slot_at_once(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(
        guest.wasm(
            f"(drop (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(9)}))"
            f"(if (call $part_count) (then (drop (call $emit {guest.text('here')})) (loop $on (br $on))))"
            f"(call $reply {guest.text('ok')})"
        ),
        slots=1,
    )
    before = box.arena.count
    made.run(box.job(box.part(b"x"), id="endless", seconds=3600), box.sink)
    eventually(lambda: box.sink.chunks == [b"here"])
    made.cancel("endless")
    made.run(box.job(id="next"), box.sink)
    ended.wait(2)
    assert ended.codes == ["cancelled"]
    assert ended.replies == [b"ok"]
    eventually(lambda: box.arena.count == before + 1)


def test_a_guest_can_not_outlive_its_cancellation_inside_host_calls(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    """It gets ECANCELED from the call that waits, and no time to ignore that."""
    made = pool(
        guest.wasm(
            f"(drop (call $emit {guest.text('waiting')}))"
            "(loop $again (drop (call $part_wait (i32.const 0) (i32.const 1))) (br $again)) (i32.const 0)"
        )
    )
    made.run(box.job(box.part(b"x", room=100, streamed=True), seconds=3600), box.sink)
    eventually(lambda: box.sink.chunks == [b"waiting"])
    made.cancel("job")
    ended.wait()
    assert ended.codes == ["cancelled"]


def test_part_wait_wakes_as_a_stream_grows_and_ends(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(
        guest.results(
            "(call $part_wait (i32.const 0) (i32.const 0))",
            "(local.tee $b (call $part_map (i32.const 0)))",
            "(call $part_tensor (i32.const 0))",
            f"(call $emit {guest.text('more?')})",
            "(call $part_wait (i32.const 0) (i32.const 3))",
            "(i32.load8_u offset=4 (local.get $b))",
            f"(call $emit {guest.text('more?')})",
            "(call $part_wait (i32.const 0) (i32.const 5))",
            "(i32.gt_s (call $part_tensor (i32.const 0)) (i32.const 0))",
        )
    )
    part = box.part(b"abc", room=200_000, streamed=True)
    room = box.arena.view(part.offset, part.room, DType.U8, (part.room,)).numpy()
    made.run(box.job(part), box.sink)
    eventually(lambda: len(box.sink.chunks) == 1)
    room[3:5] = [100, 101]
    made.grow("job", 0, 5, False)
    eventually(lambda: len(box.sink.chunks) == 2)
    made.grow("job", 0, 5, True)
    ended.wait()
    first, window, growing, _, second, byte, _, last, tensor = struct.unpack("<9i", ended.replies[0])
    assert (first, second, byte, last, tensor) == (3, 2, 101, 0, 1)
    assert window > 0
    assert growing < 0, "a part that grows is no tensor yet"


def test_growth_never_exceeds_the_parts_room(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(guest.results("(call $part_wait (i32.const 0) (i32.const 1))"))
    made.run(box.job(box.part(b"a", room=10, streamed=True)), box.sink)
    made.grow("job", 0, 10**9, True)
    made.grow("job", 7, 5, True)
    ended.wait()
    assert struct.unpack("<i", ended.replies[0]) == (9,)


def test_emit_blocks_while_the_client_does_not_read(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    chunk = 64 << 10
    made = pool(
        guest.wasm(
            f"(loop $on (drop (call $emit (i32.const 0) (i32.const {chunk})))"
            "(local.set $a (i32.add (local.get $a) (i32.const 1)))"
            "(br_if $on (i32.lt_u (local.get $a) (i32.const 20)))) "
            f"(call $reply {guest.text('ok')})"
        )
    )
    made.run(box.job(), box.sink)
    allowed = EMIT_WINDOW // chunk + 1
    for expected in range(allowed, 20):
        eventually(lambda count=expected: len(box.sink.chunks) == count)
        made.acknowledge("job", chunk)
    ended.wait()
    assert len(box.sink.chunks) == 20
    assert ended.replies == [b"ok"]


def test_a_client_that_never_reads_ends_at_the_deadline(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    made = pool(
        guest.wasm("(loop $on (drop (call $emit (i32.const 0) (i32.const 65536))) (br $on)) (i32.const 0)")
    )
    made.run(box.job(seconds=0.3), box.sink)
    ended.wait()
    assert ended.codes == ["deadline_exceeded"]


def test_reply_tensors_stay_leased_until_they_are_released(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    made = pool(
        guest.wasm(
            f"(drop (call $reply_tensor {guest.text('t')}"
            f" (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(5)})))"
            f"(call $reply {guest.text('ok')})"
        )
    )
    before = box.arena.count
    made.run(box.job(), box.sink)
    ended.wait()
    eventually(lambda: made.inside == 0)
    assert box.arena.count == before + 1
    made.release("job")
    made.release("job")
    eventually(lambda: box.arena.count == before)


def test_a_session_goes_on_until_it_is_closed(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    counting = (
        "(block (result i32) (global.set $seen (i32.add (global.get $seen) (i32.const 1)))"
        " (global.get $seen))"
    )
    made = pool(guest.results(counting, extra="(global $seen (mut i32) (i32.const 0))"), session_lived=True)
    for number, session in enumerate(("a", "a", "b", "a", "")):
        made.run(box.job(id=f"job-{number}", session=session), box.sink)
        ended.wait()
    made.close_session("a")
    made.run(box.job(id="after", session="a"), box.sink)
    ended.wait()
    assert [struct.unpack("<i", reply)[0] for reply in ended.replies] == [1, 2, 1, 3, 1, 1]


def test_a_session_survives_a_refusal_but_not_a_trap(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(
        guest.wasm(
            "(global.set $seen (i32.add (global.get $seen) (i32.const 1)))"
            "(if (i32.eq (global.get $seen) (i32.const 2)) (then (return (i32.const -28))))"
            "(if (i32.eq (global.get $seen) (i32.const 4)) (then unreachable))"
            f"(call $reply {guest.text('ok')})",
            extra="(global $seen (mut i32) (i32.const 0))",
        ),
        session_lived=True,
    )
    for number in range(5):
        made.run(box.job(id=f"job-{number}", session="s"), box.sink)
        ended.wait()
    assert len(ended.replies) == 2
    assert ended.codes == ["usage", "unit_fault", "unit_fault"]
    assert "session has ended" in str(box.sink.errors[-1])


def test_a_session_of_a_unit_that_lives_for_one_request_is_refused(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    made = pool(guest.results("(i32.const 1)"))
    made.run(box.job(session="s"), box.sink)
    ended.wait()
    assert ended.codes == ["usage"]


def test_draining_lets_the_running_finish_and_takes_no_more(
    box: Any, guest: Any, pool: Any, ended: Ended
) -> None:
    made = pool(guest.results("(call $part_wait (i32.const 0) (i32.const 1))"))
    made.run(box.job(box.part(b"a", room=9, streamed=True), id="inside"), box.sink)
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(made.drain(60)))
    thread.start()
    eventually(lambda: made.state is State.DRAINING)
    made.run(box.job(id="late"), box.sink)
    ended.wait()
    assert ended.codes == ["cancelled"]
    made.grow("inside", 0, 3, False)
    thread.join()
    assert drained == [True]
    assert ended.replies == [struct.pack("<i", 2)]


def test_draining_cancels_what_has_not_ended_in_time(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(guest.wasm(SPIN))
    made.run(box.job(seconds=3600), box.sink)
    assert made.drain(0.05) is False
    ended.wait()
    assert ended.codes == ["cancelled"]


def test_one_job_is_never_in_the_pool_twice(box: Any, guest: Any, pool: Any, ended: Ended) -> None:
    made = pool(guest.wasm(SPIN))
    made.run(box.job(seconds=3600), box.sink)
    made.run(box.job(seconds=3600), box.sink)
    ended.wait()
    assert ended.codes == ["unit_fault"]
    made.cancel("job")
    ended.wait()
    assert ended.codes == ["unit_fault", "cancelled"]
