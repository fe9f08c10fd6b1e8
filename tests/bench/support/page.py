"""docs/benchmarks.md, from what the benchmarks found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_KNOWN = {"bench", "ours", "peer", "unit", "ratio", "spread", "goal", "goal_of", "met"}
_HEAD = """\
# Benchmarks

Written by `make bench`: ours and the peer in one run, in alternation. Values are medians; *ratio* is of the
two medians, larger is better; *spread* is the interquartile range of the ratios of the single alternations.
"""
_BUSY = """\
**Other programs were running**: all of these figures are rough, and those of llama.cpp, whose threads spin
for one another, hardly mean anything.
"""
_IDLE_LOAD = 0.7


@dataclass(frozen=True, slots=True)
class Found:
    """What one script found: its results as it printed them, or why there are none."""

    script: str
    about: str
    notes: str
    results: Sequence[Mapping[str, Any]]
    date: str
    failure: str = ""


def page(found: Sequence[Found], machine: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """The whole page, in Markdown."""
    facts = ", ".join(f"{name}: {value}" for name, value in machine.items())
    used = ", ".join(f"{name} {value}" for name, value in versions.items())
    rows = [_row(result) for each in found for result in each.results]
    table = [
        "| benchmark | ours | peer | unit | ratio | spread | goal | met |",
        "|---|---:|---:|---|---:|---:|---|---|",
        *rows,
    ]
    busy = float(machine.get("load before", 0)) > _IDLE_LOAD
    parts = [_HEAD, f"{facts}.\n\nVersions: {used}.\n", *([_BUSY] if busy else []), "\n".join(table) + "\n"]
    return "\n".join([*parts, *(_section(each) for each in found)])


def _row(result: Mapping[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: ""}[result["met"]]
    cells = (
        result["bench"], _number(result["ours"]), _number(result["peer"]), result["unit"],
        _number(result["ratio"]), _number(result["spread"]), goal(result), met,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def goal(result: Mapping[str, Any]) -> str:
    """What was aimed for, in words."""
    if result["goal"] is None:
        return ""
    if result["goal_of"] == "ratio":
        return f"ratio ≥ {result['goal']:g}"
    return f"≤ {result['goal']:g} {result['unit']}"


def _section(found: Found) -> str:
    lines = [
        f"## {found.script.replace('_', '-')}",
        "",
        found.about,
        "",
        found.notes.strip(),
        "",
        f"Taken on {found.date}.",
        "",
    ]
    if found.failure:
        lines += [f"It did not run: {found.failure}", ""]
    for result in found.results:
        if result["met"] is False:
            lines += [_shortfall(result), ""]
        more = {name: value for name, value in result.items() if name not in _KNOWN}
        lines += [f"`{result['bench']}`: {_flat(more)}.", ""]
    return "\n".join(lines)


def _shortfall(result: Mapping[str, Any]) -> str:
    value = result[result["goal_of"]]
    return f"**Falls short** of {goal(result)}: {result['bench']} has {_number(value)}."


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} ({_flat(value)})" if isinstance(value, Mapping) else f"{name} {value}"
        for name, value in values.items()
    )
