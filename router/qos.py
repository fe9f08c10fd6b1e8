"""Classes of service, their budgets, and the level that orders all work on the box.

    P = (1,000,000 / relative deadline in µs) × penalty,   level = floor(log2 P) + LEVEL_OFFSET, in 0..31

The offset makes room for deadlines of more than a second, where log2 P is negative: a realtime request is at
level 20, an interactive one at 17, a batch one at 11. Near-equals are equals, so they take turns by deadline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hailmesh.hail.errors import UsageError

LEVEL_OFFSET = 16
TOP_LEVEL = 31


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long a request may take, in seconds: until its `first` result, `between` two results of a stream,
    and in `total`. `total` is the deadline that is enforced; `first` orders the queue."""

    first: float
    between: float
    total: float


CLASSES: dict[str, Budgets] = {
    "realtime": Budgets(0.033, 0.033, 0.033),
    "interactive": Budgets(0.5, 0.2, 60.0),
    "batch": Budgets(30.0, 30.0, 30.0),
}


def priority(deadline_us: float, penalty: float = 1.0) -> float:
    """P for a relative deadline in microseconds; `penalty` is the unit's SLA weight, > 0."""
    return 1e6 / max(deadline_us, 1.0) * penalty


def level(deadline_us: float, penalty: float = 1.0) -> int:
    """The level of P, 0 (least urgent) to 31."""
    return max(0, min(TOP_LEVEL, math.floor(math.log2(priority(deadline_us, penalty))) + LEVEL_OFFSET))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a request gets, after the policy has looked at what it asked for."""

    qos_class: str
    budgets: Budgets
    penalty: float
    level: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What a unit grants by default, and the bounds on what callers may ask for.

    `deadline`: the unit's own total deadline in seconds, None for that of its class. `ceiling`: the most
    urgent class a caller may have. A caller may set a shorter deadline than that class has, and is then
    refused sooner, but it buys no higher level. `longest`: the longest total, in seconds.
    """

    default: str = "interactive"
    deadline: float | None = None
    penalty: float = 1.0
    ceiling: str = "realtime"
    longest: float = 600.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty > 0):
            raise UsageError(f"qos penalty: expected a number above 0, found {self.penalty}")
        for name in (self.default, self.ceiling):
            budgets(name)

    def terms(self, asked: str | None = None, deadline: float | None = None) -> Terms:
        """The terms for a caller who asked for a class, a total deadline in seconds, both or neither.
        UsageError if either makes no sense."""
        name = self.default if asked is None else asked
        granted = budgets(name)
        cap = CLASSES[self.ceiling]
        if granted.first < cap.first:
            name, granted = self.ceiling, cap
        if deadline is None and asked is None:
            deadline = self.deadline
        if deadline is not None:
            granted = _with_total(granted, deadline, self.longest)
        urgency = max(granted.first, cap.first)
        return Terms(name, granted, self.penalty, level(urgency * 1e6, self.penalty))


def budgets(name: str) -> Budgets:
    """The budgets of a class; UsageError lists the classes if there is none of that name."""
    try:
        return CLASSES[name]
    except KeyError:
        raise UsageError(f"QoS class: expected one of {', '.join(CLASSES)}, found '{name}'") from None


def _with_total(base: Budgets, total: float, longest: float) -> Budgets:
    """`base` stretched or cut to another total. A class whose first result is its last keeps being so."""
    if not (math.isfinite(total) and total > 0):
        raise UsageError(f"deadline: expected a time above 0, found {total * 1e3:g} ms")
    total = min(total, longest)
    if base.first == base.total:
        return Budgets(total, total, total)
    return Budgets(min(base.first, total), min(base.between, total), total)
