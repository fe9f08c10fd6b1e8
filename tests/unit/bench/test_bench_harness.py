"""The statistics of benchmarks, and the line that each prints."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from bench.harness import FEWEST, HIGHER, Result, Series, alternate, compare, interquartile_range, report


def counter(*values: float) -> Iterator[float]:
    yield from values


def test_subjects_are_measured_in_alternation_and_the_warmup_is_not_counted():
    order: list[str] = []
    a, b = counter(9.0, 1.0, 2.0), counter(8.0, 3.0, 4.0)

    def measure(name: str, values: Iterator[float]) -> float:
        order.append(name)
        return next(values)

    series = alternate({"ours": lambda: measure("a", a), "peer": lambda: measure("b", b)}, rounds=2, warmup=1)
    assert order == ["a", "b"] * 3
    assert series.values == {"ours": [1.0, 2.0], "peer": [3.0, 4.0]}


def test_for_times_the_ratio_is_the_peers_median_over_ours():
    series = Series({"ours": [1.0, 2.0, 3.0], "peer": [4.0, 4.0, 100.0]})
    result = compare("x", series, unit="ms", goal=1.5)
    assert (result.ours, result.peer, result.ratio, result.met) == (2.0, 4.0, 2.0, True)


def test_for_rates_the_ratio_is_ours_over_the_peers():
    series = Series({"ours": [10.0, 20.0, 30.0], "peer": [40.0, 40.0, 40.0]})
    result = compare("x", series, unit="tokens/s", better=HIGHER, goal=1.0)
    assert (result.ratio, result.met) == (0.5, False)
    assert result.extra["best"] == {"ours": 30.0, "peer": 40.0}


def test_the_spread_is_the_interquartile_range_of_the_single_ratios():
    series = Series({"ours": [1.0] * 5, "peer": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert compare("x", series, unit="ms").spread == 2.0  # quartiles 2 and 4


def test_a_common_slowdown_of_single_rounds_leaves_the_spread_at_zero():
    series = Series({"ours": [1.0, 7.0, 2.0], "peer": [2.0, 14.0, 4.0]})
    assert compare("x", series, unit="ms").spread == 0.0


@pytest.mark.parametrize(("values", "expected"), [([3.0], 0.0), ([1.0, 3.0], 1.0), ([5.0, 1.0, 3.0], 2.0)])
def test_interquartile_range_of_few_values(values: list[float], expected: float):
    assert interquartile_range(values) == expected


@pytest.mark.parametrize(
    ("better", "goal_of", "goal", "met"),
    [("lower", "ours", 10.0, True), ("lower", "ours", 9.9, False), ("higher", "ours", 10.1, False),
     ("lower", "ratio", 2.0, True), ("lower", "ratio", 2.1, False), ("lower", "ratio", None, None)],
)  # fmt: skip
def test_a_goal_is_for_the_ratio_or_for_our_own_value(better, goal_of, goal, met):
    assert Result("x", 10.0, 20.0, "µs", 2.0, 0.1, goal, goal_of, better).met is met


def test_the_last_line_is_one_json_object_with_the_promised_fields(capsys):
    first = Result("prefill", 1.0, 2.0, "tokens/s", 0.5, 0.0, 1.8, better=HIGHER)
    last = Result("decode", 1.23456, None, "µs", None, None, None, extra={"note": 7})
    report(first, last)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"bench", "ours", "peer", "unit", "ratio", "spread", "goal"} <= found.keys()
    assert (found["bench"], found["ours"], found["peer"], found["ratio"]) == ("decode", 1.235, None, None)
    assert found["note"] == 7


def test_rounds_end_early_when_the_time_is_up_but_never_before_the_fewest():
    series = alternate({"ours": lambda: 1.0}, rounds=1000, warmup=2, seconds=0.0)
    assert len(series.values["ours"]) == FEWEST
