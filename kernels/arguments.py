"""Checks of values that come as JSON from a unit: one line says what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hailmesh.hail.errors import UsageError

Check = Callable[[str, object], Any]
"""(name, value) → the value as the code wants it; UsageError if it isn't acceptable."""


def number(low: float, high: float) -> Check:
    """A finite number from `low` to `high`, as float."""

    def check(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise UsageError(f"{name} is a number from {low:g} to {high:g}, not {value!r}")
        return float(value)

    return check


def integer(low: int, high: int) -> Check:
    """A whole number from `low` to `high`."""

    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UsageError(f"{name} is a whole number from {low} to {high}, not {value!r}")
        return value

    return check


def choice(*allowed: str) -> Check:
    """One of a few words."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise UsageError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
        return value

    return check


def several(element: Check, *, least: int, most: int) -> Check:
    """A list of `least` to `most` elements, as a tuple."""
    length = str(least) if least == most else f"{least} to {most}"

    def check(name: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise UsageError(f"{name} is a list of {length} elements, not {_short(value)}")
        return tuple(element(f"{name}[{index}]", item) for index, item in enumerate(value))

    return check


def optional(inner: Check) -> Check:
    """Null, or what `inner` takes."""
    return lambda name, value: None if value is None else inner(name, value)


def check_all(what: str, given: object, checks: Mapping[str, Check]) -> dict[str, Any]:
    """The fields of a JSON object, each checked. UsageError if it is no object or has an unknown field."""
    if not isinstance(given, dict):
        raise UsageError(f"{what} are a JSON object, not {_short(given)}")
    for name in given:
        if name not in checks:
            raise UsageError(f"{what} have no {name!r}; known are {', '.join(sorted(checks))}")
    return {name: checks[name](name, value) for name, value in given.items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
