"""Which step a sequence engine takes next. Pure: states in, decision out; nothing here waits or computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SMALL_CHUNK = 8
LARGE_CHUNK = 64
_DECAY = 0.95


@dataclass(frozen=True, slots=True)
class Ready:
    """A sequence that waits for `tokens` of its own to be computed; `urgency`: what sorts first comes first
    among those of a level."""

    slot: int
    level: int
    urgency: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """Either one token to each of `slots` (batched), or `chunk` tokens to the single one."""

    slots: tuple[int, ...]
    chunk: int

    @property
    def first(self) -> int:
        return self.slots[0]

    @property
    def width(self) -> int:
        """Slots from the first to the last, those between that have nothing to do included."""
        return self.slots[-1] - self.slots[0] + 1


class StepCost:
    """What a batched step of some rows takes: fixed + rows · each, fitted to the steps seen, old ones
    forgotten. Starts with what was measured of a 135M model on two threads."""

    def __init__(self) -> None:
        self._weight = self._rows = self._squares = self._seconds = self._products = 0.0
        self.fixed, self.each = 7.5e-3, 2.8e-3

    def observe(self, rows: int, seconds: float) -> None:
        """A step of `rows` took `seconds`."""
        self._weight = self._weight * _DECAY + 1
        self._rows = self._rows * _DECAY + rows
        self._squares = self._squares * _DECAY + rows * rows
        self._seconds = self._seconds * _DECAY + seconds
        self._products = self._products * _DECAY + rows * seconds
        spread = self._weight * self._squares - self._rows**2
        if spread > 0.05 * self._weight**2:
            each = (self._weight * self._products - self._rows * self._seconds) / spread
            fixed = (self._seconds - each * self._rows) / self._weight
            if each > 0 and fixed > 0:
                self.each, self.fixed = each, fixed

    def bridges(self, holes: int) -> bool:
        """Whether computing `holes` rows for nothing is cheaper than a step more."""
        return holes * self.each < self.fixed


def choose(ready: Sequence[Ready], *, batched: bool, after_chunk: bool, chunk: int, cost: StepCost) -> Step:
    """The next step for a non-empty `ready`.

    The highest level comes first. Where some of it want one token and others many, they take turns, so that
    a long prompt delays everybody else's next token by one chunk only. Whoever else wants one token joins
    a batched step when the slots between them cost less than a step of their own.
    """
    level = max(each.level for each in ready)
    leaders = sorted(
        (each for each in ready if each.level == level), key=lambda each: (each.urgency, each.slot)
    )
    single = [each for each in leaders if each.tokens == 1]
    many = [each for each in leaders if each.tokens > 1]
    leader = many[0] if many and not (single and after_chunk) else single[0]
    if not batched or leader.tokens > 1:
        return Step((leader.slot,), min(leader.tokens, chunk))
    run: list[int] = []
    for slot in sorted(each.slot for each in ready if each.tokens == 1):
        if run and not cost.bridges(slot - run[-1] - 1):
            if leader.slot in run:
                break
            run = []
        run.append(slot)
    return Step(tuple(run), 1)
