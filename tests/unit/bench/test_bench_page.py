"""The page that `make bench` writes."""

from __future__ import annotations

from typing import Any

import pytest
from bench.harness import Result
from bench.support.page import Found, goal, page


def found(*results: Result, failure: str = "") -> Found:
    return Found(
        "hand_over", "About it.", "Its notes.", [each.fields() for each in results], "2030-01-02", failure
    )


def written(*each: Found) -> str:
    return page(each, {"CPU": "Orin", "cores": "8"}, {"Python": "3.10"})


MISSED: dict[str, Any] = {"bench": "hand-over", "ours": 10.0, "peer": 12.0, "unit": "ms", "spread": 0.25}


def test_the_table_has_a_row_for_each_result():
    text = written(found(Result(**MISSED, ratio=1.2, goal=1.0)))
    assert "| hand-over | 10 | 12 | ms | 1.2 | 0.25 | ratio ≥ 1 | yes |" in text
    assert "Falls short" not in text


def test_a_goal_that_was_missed_is_said_in_the_table_and_in_words():
    text = written(found(Result(**MISSED, ratio=1.2, goal=2.0)))
    assert "| ratio ≥ 2 | **no** |" in text
    assert "**Falls short** of ratio ≥ 2: hand-over has 1.2." in text


def test_a_bench_without_peer_and_goal_leaves_its_cells_empty():
    text = written(found(Result("memory", 631.0, None, "MiB", None, None, None)))
    assert "| memory | 631 |  | MiB |  |  |  |  |" in text


def test_notes_machine_versions_and_date_are_on_the_page():
    text = written(found())
    for said in ("## hand-over", "About it.", "Its notes.", "CPU: Orin", "Python 3.10", "2030-01-02"):
        assert said in text


def test_what_else_was_found_is_listed_nested_values_in_brackets():
    text = written(
        found(Result(**MISSED, ratio=1.2, goal=None, extra={"read": {"ours": 3, "peer": 4}, "n": 1}))
    )
    assert "`hand-over`: read (ours 3, peer 4), n 1." in text


def test_a_bench_that_did_not_run_says_why():
    assert "It did not run: status 1, no images" in written(found(failure="status 1, no images"))


def test_a_goal_for_our_own_value_is_given_in_its_unit():
    assert goal(Result("x", 1.0, None, "µs", None, None, 100.0, "ours").fields()) == "≤ 100 µs"


@pytest.mark.parametrize(("load", "said"), [("0.3", False), ("2.7", True)])
def test_figures_of_a_busy_machine_come_with_a_warning(load: str, said: bool):
    text = page([found()], {"load before": load}, {})
    assert ("Other programs were running" in text) is said
