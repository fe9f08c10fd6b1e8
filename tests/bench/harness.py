"""What all benchmarks share: ours and the peer measured in one run, in alternation, and reported alike.

A benchmark prints what it found for people, and as its last line one JSON object:

    bench, ours, peer, unit    medians; peer is null where there is nothing to compare with
    ratio                      of the two medians, larger is better: peer/ours for times, ours/peer for rates
    spread                     interquartile range of the ratios of the single alternations
    goal, goal_of, met         what was aimed for, of which of the fields, and whether it was reached

and whatever else it found, among it `best`, the best single values: on a machine with other work they tell
more than medians about the thing measured. `ratio` and `spread` are null without a peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Measure = Callable[[], float]
LOWER, HIGHER = "lower", "higher"
FEWEST = 3
"""Rounds that always count, however slow the machine is."""


@dataclass(frozen=True, slots=True)
class Series:
    """What was measured, by subject, one value per alternation."""

    values: Mapping[str, Sequence[float]]

    def median(self, subject: str) -> float:
        return statistics.median(self.values[subject])

    def ratios(self, ours: str, peer: str, better: str) -> list[float]:
        """Of each alternation; larger is better."""
        pairs = zip(self.values[ours], self.values[peer], strict=True)
        return [theirs / own if better == LOWER else own / theirs for own, theirs in pairs]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. `goal_of`: `ratio` (at least), or `ours` (at most where lower is better)."""

    bench: str
    ours: float
    peer: float | None
    unit: str
    ratio: float | None
    spread: float | None
    goal: float | None
    goal_of: str = "ratio"
    better: str = LOWER
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal was reached; None if there is none."""
        if self.goal is None:
            return None
        if self.goal_of == "ratio":
            return self.ratio is not None and self.ratio >= self.goal
        return self.ours <= self.goal if self.better == LOWER else self.ours >= self.goal

    def fields(self) -> dict[str, Any]:
        """As it is printed."""
        numbers = {
            "bench": self.bench,
            "ours": short(self.ours),
            "peer": short(self.peer),
            "unit": self.unit,
            "ratio": short(self.ratio),
            "spread": short(self.spread),
            "goal": self.goal,
            "goal_of": self.goal_of,
            "met": self.met,
        }
        return {**numbers, **self.extra}

    def line(self) -> str:
        return json.dumps(self.fields(), ensure_ascii=False)


def short(value: float | None) -> float | None:
    """Four significant digits: more would claim a precision that nothing here has."""
    return None if value is None else float(f"{value:.4g}")


def alternate(
    subjects: Mapping[str, Measure],
    *,
    rounds: int,
    warmup: int = 1,
    pause: float = 0.0,
    seconds: float = 120.0,
) -> Series:
    """Measures each subject once a round, one after the other, `rounds` times after `warmup` rounds that
    don't count; fewer times, but at least FEWEST, once `seconds` have passed. `pause` seconds lie between
    any two, for what a subject leaves running."""
    values: dict[str, list[float]] = {name: [] for name in subjects}
    until = time.monotonic() + seconds
    for turn in range(warmup + rounds):
        if turn >= warmup + FEWEST and time.monotonic() >= until:
            break
        for name, measure in subjects.items():
            if pause:
                time.sleep(pause)
            value = measure()
            if turn >= warmup:
                values[name].append(value)
    return Series(values)


def compare(
    bench: str,
    series: Series,
    *,
    unit: str,
    better: str = LOWER,
    goal: float | None = None,
    goal_of: str = "ratio",
    ours: str = "ours",
    peer: str = "peer",
    extra: Mapping[str, Any] | None = None,
) -> Result:
    """The result of two subjects that were measured in alternation."""
    own, theirs = series.median(ours), series.median(peer)
    ratios = series.ratios(ours, peer, better)
    ratio = theirs / own if better == LOWER else own / theirs
    choose = min if better == LOWER else max
    best = {name: short(choose(series.values[name])) for name in (ours, peer)}
    return Result(
        bench,
        own,
        theirs,
        unit,
        ratio,
        interquartile_range(ratios),
        goal,
        goal_of,
        better,
        {**(extra or {}), "best": {"ours": best[ours], "peer": best[peer]}, "rounds": len(ratios)},
    )


def interquartile_range(values: Sequence[float]) -> float:
    """Of at least one value; 0 of one."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def timed(action: Callable[[], object], times: int = 1) -> float:
    """Seconds that one of `times` calls took on average."""
    began = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - began) / times


def quick(about: str) -> bool:
    """Reads the command line of a benchmark: whether `--quick` was given, for a run that only shows that
    the benchmark works."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast")
    return bool(parser.parse_args().quick)


def report(*results: Result) -> None:
    """Prints each result for people, then as JSON; the last one given is the last line."""
    for result in results:
        peer = "" if result.peer is None else f"  peer {short(result.peer):g}"
        ratio = "" if result.ratio is None else f"  ratio {result.ratio:.2f}"
        spread = "" if result.spread is None else f" ± {result.spread:.2f}"
        goal = "" if result.goal is None else f"  goal {result.goal_of} {result.goal:g}: {_said(result.met)}"
        print(f"{result.bench:16} ours {short(result.ours):g}{peer} {result.unit}{ratio}{spread}{goal}")
    for result in results:
        print(result.line(), flush=True)


def _said(met: bool | None) -> str:
    return "met" if met else "not met"
