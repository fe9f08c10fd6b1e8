"""Lanes: where device work runs on a CPU, and with what guarantee."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import UsageError
from hailmesh.hail.gate import Domain, Gate

URGENT = "urgent"
BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to one device step; `waited` seconds passed at the gate."""

    lane: str
    level: int
    waited: float


class Lane:
    """A set of cores and the gate before them. A wide lane uses all cores, and so competes with every other;
    two lanes with cores of their own only wait for work within themselves."""

    def __init__(self, name: str, cores: tuple[int, ...], gate: Gate, wide: bool) -> None:
        if name not in (URGENT, BEST_EFFORT):
            raise UsageError(f"a lane is {URGENT!r} or {BEST_EFFORT!r}, not {name!r}")
        own = Domain.URGENT if name == URGENT else Domain.BEST_EFFORT
        self.name = name
        self.cores = cores
        self.wide = wide
        self.gate = gate.within(Domain.WIDE if wide else own)

    @property
    def threads(self) -> int:
        """How many threads one step may use: all cores of a wide lane; else one, on the caller's thread, so
        that one session can serve callers of several lanes."""
        return max(1, len(self.cores)) if self.wide else 1

    @contextmanager
    def ticket(self, level: int, token: CancelToken) -> Iterator[Ticket]:
        """Around each device step: waits at the gate first, and raises as `Gate.enter` does."""
        waited = self.gate.enter(level, token)
        try:
            yield Ticket(self.name, level, waited)
        finally:
            self.gate.leave(level)

    def pin(self) -> bool:
        """The calling thread runs on this lane's cores from now on. False if this machine has none of them
        for this process: the thread stays where it is."""
        try:
            os.sched_setaffinity(0, self.cores)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return False
            raise
        return True


@dataclass(frozen=True, slots=True)
class Lanes:
    """The machine's lanes."""

    urgent: Lane
    best_effort: Lane

    @classmethod
    def split(cls, gate: Gate, *, wide: bool = False, cores: tuple[int, ...] | None = None) -> Lanes:
        """Partitions `cores` (those this process may use, by default): a quarter, at least one, for urgent
        work, the rest for best effort. Wide, or with a single core, both lanes get all of them."""
        cores = tuple(sorted(os.sched_getaffinity(0))) if cores is None else cores
        urgent = max(1, len(cores) // 4)
        if wide or len(cores) < 2:
            return cls(Lane(URGENT, cores, gate, True), Lane(BEST_EFFORT, cores, gate, True))
        return cls(Lane(URGENT, cores[:urgent], gate, False), Lane(BEST_EFFORT, cores[urgent:], gate, False))

    def of(self, name: str) -> Lane:
        """The lane of that name; UsageError if there is none."""
        for lane in (self.urgent, self.best_effort):
            if lane.name == name:
                return lane
        raise UsageError(f"a lane is {URGENT!r} or {BEST_EFFORT!r}, not {name!r}")
