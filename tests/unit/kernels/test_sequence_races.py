"""Many threads that open, feed, cancel and close at random: every logit that comes out is right, whoever else
was cut off meanwhile, and at the end all is as before."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, Overloaded
from hailmesh.kernels.sequence import Sequence, SequenceEngine

CONTEXT, THREADS, ROUNDS = 60, 6, 12


def request(chance: random.Random) -> CancelToken:
    return CancelToken(time.monotonic_ns() + int(chance.choice([0.005, 0.05, 30]) * 1e9))


def converse(
    sequence: Sequence, chance: random.Random, decoder: Any, token: CancelToken, happened: Counter
) -> None:
    ids: list[int] = []
    for _ in range(chance.randrange(1, 10)):
        new = [chance.randrange(61) for _ in range(chance.choice([1, 1, 1, 7, 20]))]
        if len(ids) + len(new) > CONTEXT:
            return
        if chance.random() < 0.1:
            token.cancel()
        try:
            sequence.feed(np.array(new), token)
            ids += new
            np.testing.assert_allclose(sequence.logits, decoder.logits(ids)[-1], atol=3e-3, rtol=1e-3)
            happened["computed"] += 1
        except (Cancelled, DeadlineExceeded):
            ids += new[: sequence.position - len(ids)]
            token = CancelToken()
            happened["cut off"] += 1
        assert sequence.position == len(ids)


def live(engine: SequenceEngine, seed: int, decoder: Any) -> Counter:
    chance, happened = random.Random(seed), Counter()
    for _ in range(ROUNDS):
        token = request(chance)
        try:
            with engine.open(CONTEXT, token, chance.randrange(1, 8)) as sequence:
                converse(sequence, chance, decoder, token, happened)
        except Overloaded:
            happened["refused"] += 1
    return happened


def test_whatever_happens_to_some_the_others_get_their_own_logits(
    memory: Any, save: Any, decoder: Any, lane: Any
) -> None:
    before = memory.arena.count
    engine = SequenceEngine(
        save(decoder.graph()), context=CONTEXT, slots=3, threads=1, lane=lane, arena=memory.arena
    )
    with engine, ThreadPoolExecutor(THREADS) as pool:
        happened = sum(pool.map(lambda seed: live(engine, seed, decoder), range(THREADS)), Counter())
        report = engine.report()
    assert happened["computed"] > 50
    assert happened["cut off"] > 5
    assert (report.open, report.waiting, report.queued) == (0, 0, 0)
    assert memory.arena.count == before
