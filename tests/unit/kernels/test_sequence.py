"""Sequences: whatever is batched, cut into chunks, moved or cancelled, the logits are those of each alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, DeviceError, Overloaded, TooLarge, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.kernels.sequence import Sequence, SequenceEngine

CONTEXT = 48
Make = Callable[..., SequenceEngine]


@pytest.fixture
def make(memory: Any, save: Any, decoder: Any, lane: Lane) -> Iterator[Make]:
    engines = []

    def make(model: Any = None, **options: Any) -> SequenceEngine:
        options = {"context": CONTEXT, "slots": 4, "threads": 1, "lane": lane, **options}
        engines.append(
            SequenceEngine(save(model or decoder.graph()), arena=memory.arena, name="tiny", **options)
        )
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def soon(seconds: float = 60.0) -> CancelToken:
    return CancelToken(time.monotonic_ns() + int(seconds * 1e9))


def prompt(length: int, seed: int = 1) -> list[int]:
    return list(np.random.default_rng(seed).integers(0, 61, length))


def feed(sequence: Sequence, ids: list[int], token: CancelToken | None = None) -> np.ndarray:
    sequence.feed(np.array(ids, np.int64), token or soon())
    return sequence.logits.copy()


def assert_logits(got: np.ndarray, truth: np.ndarray) -> None:
    np.testing.assert_allclose(got, truth, atol=2e-4, rtol=2e-4)


def kl(truth: np.ndarray, got: np.ndarray) -> float:
    """Kullback-Leibler divergence of softmax(got) from softmax(truth), in nats."""
    p, q = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (truth.astype(float), got.astype(float)))
    return float((np.exp(p) * (p - q)).sum())


def test_each_token_gets_the_logits_of_its_whole_prefix(make: Make, decoder: Any) -> None:
    ids = prompt(20)
    truth = decoder.logits(ids)
    with make().open(CONTEXT, soon(), 3) as sequence:
        for index, token in enumerate(ids):
            assert_logits(feed(sequence, [token]), truth[index])
        assert sequence.position == len(ids)


@pytest.mark.parametrize("chunk", [1, 3, 8, 64, None])
def test_a_prompt_gives_the_same_logits_in_chunks_of_any_size(
    make: Make, decoder: Any, chunk: int | None
) -> None:
    ids = prompt(29)
    truth = decoder.logits(ids)
    with make(chunk=chunk).open(CONTEXT, soon(), 3) as sequence:
        assert_logits(feed(sequence, ids[:13]), truth[12])
        assert_logits(feed(sequence, ids[13:]), truth[28])


def test_int32_ids_are_taken_too(make: Make, decoder: Any) -> None:
    ids = prompt(5)
    with make().open(CONTEXT, soon(), 3) as sequence:
        sequence.feed(np.array(ids, np.int32), soon())
        assert_logits(sequence.logits, decoder.logits(ids)[-1])


def test_sequences_of_different_lengths_share_steps_and_keep_their_own_logits(
    make: Make, decoder: Any, pool: ThreadPoolExecutor
) -> None:
    engine = make()
    together = threading.Barrier(4)

    def decode(seed: int) -> float:
        ids = prompt(4 + 5 * seed + 20, seed)
        start = 4 + 5 * seed
        truth = decoder.logits(ids)
        with engine.open(CONTEXT, soon(), 3) as sequence:
            worst = kl(truth[start - 1], feed(sequence, ids[:start]))
            together.wait(30)
            for index in range(start, len(ids)):
                worst = max(worst, kl(truth[index], feed(sequence, [ids[index]])))
        return worst

    assert max(pool.map(decode, range(4))) < 1e-6
    report = engine.report()
    decoded = report.tokens - sum(4 + 5 * seed for seed in range(4))
    assert decoded == 80
    assert report.steps - report.chunks < decoded


class Counted:
    """An engine on a lane whose steps the test counts out, and sequences with a prompt each."""

    def __init__(
        self, engine: SequenceEngine, lane: Any, pool: ThreadPoolExecutor, tools: Any, decoder: Any
    ) -> None:
        self.engine, self.lane, self.pool, self.tools, self.decoder = engine, lane, pool, tools, decoder
        self.ids: dict[Sequence, list[int]] = {}

    def open(self, length: int, level: int = 3) -> Sequence:
        sequence = self.engine.open(CONTEXT, soon(), level)
        self.ids[sequence] = []
        started = self.start(sequence, prompt(length, seed=length))
        while self.engine.report().waiting:
            self.step()
        self.finish(started, steps=0)
        return sequence

    def step(self) -> None:
        """One step, and no more."""
        taken = self.engine.report().steps
        self.lane.allow(1)
        self.tools.wait_until(lambda: self.engine.report().steps == taken + 1)

    def start(self, sequence: Sequence, ids: list[int], token: CancelToken | None = None) -> Any:
        """Leaves work with the engine, which has no permit for it yet."""
        waiting = self.engine.report().waiting
        future = self.pool.submit(feed, sequence, ids, token)
        self.tools.wait_until(lambda: self.engine.report().waiting == waiting + 1)
        return sequence, ids, future

    def finish(self, *started: Any, steps: int = 1) -> None:
        """Permits the steps, and checks what comes out."""
        for _ in range(steps):
            self.step()
        for sequence, ids, future in started:
            got = future.result(30)
            self.ids[sequence] += ids
            assert_logits(got, self.decoder.logits(self.ids[sequence])[-1])


@pytest.fixture
def counted(make: Make, tools: Any, pool: ThreadPoolExecutor, decoder: Any) -> Iterator[Counted]:
    lane = tools.SteppedLane()
    engine = make(lane=lane)
    yield Counted(engine, lane, pool, tools, decoder)
    lane.allow_all()


def test_all_that_wait_for_one_token_get_it_in_one_step(counted: Counted) -> None:
    sequences = [counted.open(length) for length in (3, 9, 5, 7)]
    before = counted.engine.report()
    counted.finish(*(counted.start(sequence, [11 + i]) for i, sequence in enumerate(sequences)))
    after = counted.engine.report()
    assert (after.steps - before.steps, after.tokens - before.tokens, after.riders) == (1, 4, 0)


def test_a_sequence_between_two_others_rides_along_unharmed(counted: Counted) -> None:
    first, between, last = (counted.open(length) for length in (6, 10, 4))
    for token in (1, 2, 3):
        counted.finish(counted.start(first, [token]), counted.start(last, [token + 20]))
    assert counted.engine.report().riders == 3
    counted.finish(counted.start(between, [30]))
    counted.finish(counted.start(between, [31, 32, 33]))


def test_a_full_sequence_rides_along_and_harms_nobody(counted: Counted) -> None:
    first, full, last = counted.open(6), counted.open(CONTEXT), counted.open(4)
    counted.finish(counted.start(first, [1]), counted.start(last, [2]))
    counted.finish(counted.start(first, [3]), counted.start(last, [4]))
    assert full.position == CONTEXT
    assert counted.engine.report().riders == 2


def test_a_gap_that_a_closed_sequence_left_is_closed_by_moving_the_last(counted: Counted) -> None:
    first, gone, last = (counted.open(length) for length in (6, 10, 13))
    gone.close()
    for token in (1, 2, 3):
        counted.finish(counted.start(first, [token]), counted.start(last, [token + 20]))
    report = counted.engine.report()
    assert (report.moves, report.riders) == (1, 0)
    newcomer = counted.open(8)
    counted.finish(*(counted.start(sequence, [40]) for sequence in (first, last, newcomer)))


def test_a_newcomer_s_prompt_lets_others_have_a_token_after_each_chunk(counted: Counted) -> None:
    writer = counted.open(6)
    newcomer = counted.engine.open(CONTEXT, soon(), 3)
    counted.ids[newcomer] = []
    counted.finish(counted.start(writer, [1]))
    arrival = counted.start(newcomer, prompt(20))
    for token in (2, 3):
        # A chunk of eight comes first; the writer doesn't wait for a second one.
        counted.finish(counted.start(writer, [token]), steps=2)
    assert newcomer.position == 16
    counted.finish(arrival)


def test_a_prompt_alone_goes_in_one_large_chunk(counted: Counted) -> None:
    before = counted.engine.report()
    counted.open(40)
    after = counted.engine.report()
    assert (after.steps - before.steps, after.chunks - before.chunks) == (1, 1)


def test_a_higher_level_is_served_first_and_sets_the_step_s_level(counted: Counted) -> None:
    low, high = counted.open(4, level=1), counted.open(5, level=7)
    later = counted.start(low, prompt(6, seed=8))
    counted.finish(counted.start(high, prompt(6, seed=9)))
    assert counted.lane.levels[-1] == 7
    assert low.position == 4
    counted.finish(later)
    assert counted.lane.levels[-1] == 1


def test_a_slot_s_former_content_never_shows(make: Make, decoder: Any) -> None:
    engine = make(slots=1)
    with engine.open(CONTEXT, soon(), 3) as former:
        feed(former, prompt(CONTEXT, seed=3))
    ids = prompt(9, seed=4)
    truth = decoder.logits(ids)
    with engine.open(CONTEXT, soon(), 3) as sequence:
        assert not sequence.logits.any()
        for index, token in enumerate(ids):
            assert_logits(feed(sequence, [token]), truth[index])


@pytest.mark.parametrize("cancel", [True, False])
def test_work_that_waits_ends_with_its_request_and_others_go_on(counted: Counted, cancel: bool) -> None:
    ending, other = counted.open(4), counted.open(5)
    token = soon() if cancel else soon(0.05)
    _, _, ended = counted.start(ending, [1], token)
    started = counted.start(other, [2])
    if cancel:
        token.cancel()
    with pytest.raises(Cancelled if cancel else DeadlineExceeded):
        ended.result(30)
    counted.finish(started)
    assert ending.position == 4
    counted.finish(counted.start(ending, [3]))


def test_a_prompt_ends_between_two_chunks_and_can_be_continued(counted: Counted, tools: Any) -> None:
    writer, sequence = counted.open(6), counted.open(3)
    ids = prompt(24, seed=6)
    token = soon()
    _, _, future = counted.start(sequence, ids, token)
    counted.finish(counted.start(writer, [1]), steps=2)
    tools.wait_until(lambda: sequence.position == 3 + 8)
    token.cancel()
    with pytest.raises(Cancelled):
        future.result(30)
    counted.ids[sequence] += ids[:8]
    counted.finish(counted.start(sequence, ids[8:]), steps=2)


def test_more_urgent_work_passes_a_gate_that_holds_the_engine_back(
    make: Make, gates: Any, pool: ThreadPoolExecutor, decoder: Any, tools: Any
) -> None:
    engine = make()
    with engine.open(CONTEXT, soon(), 1) as low, engine.open(CONTEXT, soon(), 9) as high:
        holder = gates(1)
        holder.enter(5, soon())
        held = pool.submit(feed, low, [1, 2, 3])
        tools.wait_until(lambda: engine.report().waiting == 1)
        assert_logits(pool.submit(feed, high, [4, 5]).result(30), decoder.logits([4, 5])[-1])
        assert not held.done()
        holder.leave(5)
        assert_logits(held.result(30), decoder.logits([1, 2, 3])[-1])


def test_a_step_that_fails_fails_only_those_in_it(make: Make, tools: Any, pool: ThreadPoolExecutor) -> None:
    broken = tools.Decoder(rows=tools.VOCABULARY - 1)  # the last token has no embedding
    lane = tools.SteppedLane()
    engine = make(broken.graph(), lane=lane)
    counted = Counted(engine, lane, pool, tools, broken)
    good, bad, other = (counted.open(length) for length in (4, 5, 6))
    _, _, failing = counted.start(bad, [60])
    lane.allow(1)
    with pytest.raises(DeviceError, match="tiny"):
        failing.result(30)
    counted.finish(counted.start(good, [1]), counted.start(other, [2]))
    counted.finish(counted.start(bad, [3]))
    lane.allow_all()


def test_beyond_its_limit_or_the_context_a_sequence_takes_nothing(make: Make) -> None:
    engine = make()
    with engine.open(10, soon(), 3) as limited, engine.open(10_000, soon(), 3) as whole:
        feed(limited, prompt(8))
        with pytest.raises(TooLarge, match="holds 8 and may hold 10"):
            feed(limited, [1, 2, 3])
        feed(limited, [1, 2])
        with pytest.raises(TooLarge):
            feed(limited, [1])
        with pytest.raises(TooLarge, match=str(CONTEXT)):
            feed(whole, prompt(CONTEXT + 1))


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (np.array([61]), "got 61"),
        (np.array([3, -1]), "got -1"),
        (np.array([], np.int64), r"\[0\]"),
        (np.array([[1]]), r"\[1, 1\]"),
        (np.array([1.0]), "float64"),
    ],
)
def test_what_is_no_token_is_refused(make: Make, ids: np.ndarray, told: str) -> None:
    with make().open(CONTEXT, soon(), 3) as sequence:
        with pytest.raises(UsageError, match=told):
            sequence.feed(ids, soon())
        assert sequence.position == 0


def test_a_closed_sequence_takes_nothing(make: Make) -> None:
    sequence = make().open(CONTEXT, soon(), 3)
    sequence.close()
    sequence.close()
    with pytest.raises(UsageError, match="closed"):
        feed(sequence, [1])


def test_opening_waits_for_a_slot(make: Make, pool: ThreadPoolExecutor) -> None:
    engine = make(slots=1)
    first = engine.open(CONTEXT, soon(), 3)
    second = pool.submit(engine.open, CONTEXT, soon(), 3)
    first.close()
    second.result(30).close()


def test_opening_in_vain_is_overloaded_and_cancelling_ends_it(make: Make, pool: ThreadPoolExecutor) -> None:
    engine = make(slots=1)
    with engine.open(CONTEXT, soon(), 3):
        with pytest.raises(Overloaded, match="all 1 places"):
            engine.open(CONTEXT, soon(0.02), 3)
        token = soon()
        waiting = pool.submit(engine.open, CONTEXT, token, 3)
        token.cancel()
        with pytest.raises(Cancelled):
            waiting.result(30)
    engine.open(CONTEXT, soon(), 3).close()


def test_of_those_who_wait_for_a_slot_the_highest_level_gets_it(
    make: Make, pool: ThreadPoolExecutor, tools: Any
) -> None:
    engine = make(slots=1)
    holder = engine.open(CONTEXT, soon(), 3)
    order: list[int] = []

    def take(level: int) -> None:
        with engine.open(CONTEXT, soon(), level):
            order.append(level)

    waiting = []
    for level in (2, 9, 5):
        waiting.append(pool.submit(take, level))
        tools.wait_until(lambda: engine.report().queued == len(waiting))
    holder.close()
    for future in waiting:
        future.result(30)
    assert order == [9, 5, 2]


def test_closing_the_engine_ends_who_waits_and_returns_its_memory(
    memory: Any, counted: Counted, pool: ThreadPoolExecutor, tools: Any
) -> None:
    sequence = counted.open(4)
    _, _, feeding = counted.start(sequence, [1])
    others = [counted.engine.open(CONTEXT, soon(), 3) for _ in range(3)]
    opening = pool.submit(counted.engine.open, CONTEXT, soon(), 3)
    tools.wait_until(lambda: counted.engine.report().queued == 1)
    assert memory.arena.count > len(memory.leases)
    counted.engine.close()
    for future in (feeding, opening):
        with pytest.raises(Cancelled):
            future.result(30)
    assert memory.arena.count == len(memory.leases)
    with pytest.raises(UsageError, match="closed"):
        feed(others[0], [1])


def test_a_bound_input_belongs_to_its_sequence(
    make: Make, memory: Any, cross_decoder: Any, pool: ThreadPoolExecutor
) -> None:
    engine = make(cross_decoder.graph())
    assert [spec.name for spec in engine.bound] == ["cross.context"]

    def decode(seed: int) -> None:
        frames = np.random.default_rng(seed).standard_normal((1, 5 + seed, 32)).astype(np.float32)
        ids = prompt(15, seed)
        truth = cross_decoder.logits(ids, frames[0])
        with engine.open(CONTEXT, soon(), 3) as sequence:
            sequence.bind("cross.context", memory.holding(frames))
            assert_logits(feed(sequence, ids[:4]), truth[3])
            for index in range(4, 15):
                assert_logits(feed(sequence, [ids[index]]), truth[index])

    for future in [pool.submit(decode, seed) for seed in range(4)]:
        future.result(60)


def test_what_is_bound_must_fit_and_come_first(make: Make, memory: Any, cross_decoder: Any) -> None:
    engine = make(cross_decoder.graph())
    fitting = memory.holding(np.zeros((1, 3, 32), np.float32))
    with engine.open(CONTEXT, soon(), 3) as sequence:
        with pytest.raises(UsageError, match=r"missing: cross\.context"):
            feed(sequence, [1])
        with pytest.raises(UsageError, match=r"f32 \[1, any, 32\], got f32 \[1, 3, 31\]"):
            sequence.bind("cross.context", memory.holding(np.zeros((1, 3, 31), np.float32)))
        with pytest.raises(UsageError, match=r"no bound input 'cross\.0\.k'"):
            sequence.bind("cross.0.k", fitting)
        sequence.bind("cross.context", fitting)
        feed(sequence, [1])
        with pytest.raises(UsageError, match="before the first feed"):
            sequence.bind("cross.context", fitting)


def test_a_descriptor_serves_as_source(make: Make, save: Any, memory: Any, decoder: Any, lane: Lane) -> None:
    path: Path = save(decoder.graph())
    with path.open("rb") as file:
        engine = SequenceEngine(file.fileno(), context=8, slots=1, threads=1, lane=lane, arena=memory.arena)
    with engine, engine.open(8, soon(), 3) as sequence:
        assert_logits(feed(sequence, [1, 2]), decoder.logits([1, 2])[-1])


@pytest.mark.parametrize("options", [{"context": 0}, {"slots": 0}, {"chunk": 0}])
def test_an_engine_without_room_is_refused(make: Make, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        make(**options)
