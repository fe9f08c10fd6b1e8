"""Which step comes next."""

from __future__ import annotations

import pytest

from hailmesh.kernels.schedule import Ready, Step, StepCost, choose

WIDE, NARROW = StepCost(), StepCost()
NARROW.fixed, NARROW.each = 1.0, 2.0  # a row costs more than a step: nothing is bridged


def one(slot: int, level: int = 3, urgency: int = 100) -> Ready:
    return Ready(slot, level, urgency, 1)


def many(slot: int, tokens: int = 50, level: int = 3, urgency: int = 100) -> Ready:
    return Ready(slot, level, urgency, tokens)


def next_of(*ready: Ready, batched: bool = True, after_chunk: bool = False, cost: StepCost = WIDE) -> Step:
    return choose(ready, batched=batched, after_chunk=after_chunk, chunk=8, cost=cost)


def test_all_who_want_one_token_share_a_step() -> None:
    assert next_of(one(0), one(2), one(1)) == Step((0, 1, 2), 1)


def test_lower_levels_join_a_shared_step() -> None:
    assert next_of(one(0, level=5), one(1, level=1)) == Step((0, 1), 1)


def test_prompts_and_single_tokens_take_turns() -> None:
    assert next_of(one(0), many(1)) == Step((1,), 8)
    assert next_of(one(0), many(1), after_chunk=True) == Step((0,), 1)


def test_a_higher_level_s_token_comes_before_a_prompt() -> None:
    assert next_of(one(0, level=4), many(1)) == Step((0,), 1)


def test_a_higher_level_s_prompt_comes_before_tokens() -> None:
    assert next_of(one(0), many(1, level=4), after_chunk=True) == Step((1,), 8)


def test_of_two_prompts_the_one_that_must_start_earlier_comes_first() -> None:
    assert next_of(many(0, urgency=9), many(1, urgency=5)).slots == (1,)


def test_the_end_of_a_prompt_takes_what_is_left() -> None:
    assert next_of(many(0, tokens=3)) == Step((0,), 3)


def test_a_graph_without_batches_takes_them_one_by_one_in_order() -> None:
    assert next_of(one(0, urgency=9), one(1, urgency=5), batched=False) == Step((1,), 1)


def test_a_gap_is_bridged_when_its_rows_cost_less_than_a_step() -> None:
    assert next_of(one(0), one(3)) == Step((0, 3), 1)
    assert next_of(one(0), one(3)).width == 4
    assert next_of(one(0), one(7)) == Step((0,), 1)
    assert next_of(one(0), one(2), cost=NARROW) == Step((0,), 1)


def test_the_most_urgent_is_in_the_step_that_is_taken() -> None:
    assert next_of(one(0), one(5, level=9), cost=NARROW) == Step((5,), 1)
    assert next_of(one(0), one(4), one(5, urgency=1), cost=NARROW) == Step((4, 5), 1)


def test_costs_are_learnt_from_the_steps_seen() -> None:
    cost = StepCost()
    for rows in (1, 2, 4, 8) * 20:
        cost.observe(rows, 0.020 + 0.004 * rows)
    assert cost.fixed == pytest.approx(0.020)
    assert cost.each == pytest.approx(0.004)
    assert cost.bridges(4)
    assert not cost.bridges(6)


def test_costs_follow_a_machine_that_gets_slower() -> None:
    cost = StepCost()
    for factor in (1, 3):
        for rows in (1, 4) * 100:
            cost.observe(rows, factor * (0.010 + 0.002 * rows))
    assert cost.each == pytest.approx(0.006, rel=0.05)


def test_steps_of_one_width_teach_nothing_about_the_others() -> None:
    cost = StepCost()
    before = cost.fixed, cost.each
    for _ in range(100):
        cost.observe(1, 0.5)
    assert (cost.fixed, cost.each) == before
