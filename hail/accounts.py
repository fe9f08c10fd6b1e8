"""The books of an arena: bytes by owner, modality and stage, and the quotas on them."""

from __future__ import annotations

import time
from collections import defaultdict

from hailmesh.hail.lease import Block
from hailmesh.hail.report import Stage, Usage


class Tally:
    """A running account; `Usage` is its picture."""

    __slots__ = ("leases", "peak", "quota", "redundant", "used")

    def __init__(self) -> None:
        self.used = self.peak = self.redundant = self.leases = 0
        self.quota: int | None = None

    def add(self, block: Block) -> None:
        self.leases += 1
        self.used += block.nbytes
        self.redundant += block.nbytes if block.read_at is not None else 0
        if self.used > self.peak:
            self.peak = self.used

    def drop(self, block: Block) -> None:
        self.leases -= 1
        self.used -= block.nbytes
        self.redundant -= block.nbytes if block.read_at is not None else 0

    def usage(self) -> Usage:
        return Usage(self.used, self.peak, self.redundant, self.leases, self.quota)


class Accounts:
    """Not thread-safe: the arena's lock guards it. `redundancy` is in byte-seconds."""

    def __init__(self) -> None:
        self.total = Tally()
        self.owners: defaultdict[str, Tally] = defaultdict(Tally)
        self.modalities: defaultdict[str, Tally] = defaultdict(Tally)
        self.stages = {stage: Tally() for stage in Stage}
        self.redundancy = 0.0

    def excess(self, nbytes: int, owner: str, modality: str) -> str | None:
        """Which quota `nbytes` more would break, with its figures; None if none."""
        for kind, name, tallies in (
            ("quota", owner, self.owners),
            ("modality quota", modality, self.modalities),
        ):
            tally = tallies.get(name)
            if tally is not None and tally.quota is not None and tally.used + nbytes > tally.quota:
                return f"the {kind} of {name!r} is {tally.quota} bytes, {tally.used} used"
        return None

    def add(self, block: Block) -> None:
        for tally in self._of(block):
            tally.add(block)

    def drop(self, block: Block) -> None:
        if block.read_at is not None:
            self.redundancy += block.nbytes * (time.monotonic() - block.read_at)
        for tally in self._of(block):
            tally.drop(block)

    def move(self, block: Block, stage: Stage) -> None:
        self.stages[block.stage].drop(block)
        block.stage = stage
        self.stages[stage].add(block)

    def mark_read(self, block: Block) -> None:
        """From now on the block is kept for nothing."""
        if block.read_at is None:
            block.read_at = time.monotonic()
            for tally in self._of(block):
                tally.redundant += block.nbytes

    def _of(self, block: Block) -> tuple[Tally, ...]:
        own = (self.total, self.owners[block.owner], self.stages[block.stage])
        return (*own, self.modalities[block.modality]) if block.modality else own
