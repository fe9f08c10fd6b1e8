"""The state of a sequence engine: who waits for tokens, and what the next step is made of.

Everything here is for whoever holds the engine's lock, and returns at once.

A batched run covers neighbouring slots. A sequence between them that has nothing to do rides along: its token
goes to the row after its last, which its next real token overwrites, and which attention doesn't read before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import DeadlineExceeded, MeshError
from hailmesh.kernels.kv import KeyValues
from hailmesh.kernels.report import EngineReport
from hailmesh.kernels.schedule import LARGE_CHUNK, SMALL_CHUNK, Ready, Step, StepCost, choose
from hailmesh.kernels.seat import Seat, Work
from hailmesh.kernels.slots import Slots

_PATIENCE, _MOST_PATIENCE = 0.2, 0.010
"""How long a step waits for sequences that were in the last ones: this share of what a token took last, and
never more seconds than that. A batched token costs a fraction of a single one, so a short wait pays."""
_RECENT = 8
"""Steps since its last one in which a sequence still counts as decoding."""
_WORTH_MOVING = 8
"""Tokens that a sequence may still get, below which closing a gap by moving it doesn't pay."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A step about to be taken. `rows`: (token id, position) per slot, from the first member's to the last's,
    when it is one token each; else `chunk` tokens go to the single member."""

    step: Step
    members: tuple[Seat, ...]
    works: tuple[Work, ...]
    rows: tuple[tuple[int, int], ...] = ()


class Board:
    """`chunk`: tokens of a prompt per step, None to decide by who else is there."""

    def __init__(self, slots: Slots, kv: KeyValues, context: int, chunk: int | None, batched: bool) -> None:
        self.pending: dict[Seat, Work] = {}
        self.patience = 0.0
        self._slots = slots
        self._kv = kv
        self._context = context
        self._chunk = chunk
        self._batched = batched
        self._cost = StepCost()
        self._after_chunk = False
        self._counted = self._chunks = self._tokens = self._riders = self._moves = 0

    def report(self) -> EngineReport:
        """The counts, and how things stand now."""
        return EngineReport(
            steps=self._counted,
            chunks=self._chunks,
            tokens=self._tokens,
            riders=self._riders,
            moves=self._moves,
            open=len(self._slots.seated),
            waiting=len(self.pending),
            queued=self._slots.queued,
        )

    def awaited(self) -> list[Seat]:
        """Sequences that took part in one of the last two steps, and whose next token is likely to come; only
        those that are as urgent as the most urgent one that waits."""
        if not self._batched or not self.pending:
            return []
        level = max(each.level for each in self.pending)
        return [
            each
            for each in self._slots.seated.values()
            if each not in self.pending
            and not each.late
            and each.level >= level
            and self._counted - each.last_step < 2
        ]

    def shed(self) -> None:
        """Ends all work whose request has ended."""
        for seat in list(self.pending):
            self.end_if_over(seat)

    def end_if_over(self, seat: Seat) -> None:
        """Ends the work of this sequence if its request has ended."""
        error = _over(self.pending[seat].token)
        if error is not None:
            self.end(seat, error)

    def end(self, seat: Seat, error: MeshError | None = None) -> None:
        """Nothing more happens for the work of this sequence."""
        self.pending.pop(seat).finish(error)

    def begin(self) -> Batch | None:
        """The next step, its members marked as running; None when nobody waits."""
        self.shed()
        if not self.pending:
            return None
        self._close_gap()
        step = choose(
            [
                Ready(each.slot, each.level, work.token.latest_start_ns, len(work.ids))
                for each, work in self.pending.items()
            ],
            batched=self._batched,
            after_chunk=self._after_chunk,
            chunk=self._chunk or (SMALL_CHUNK if self._others_decode() else LARGE_CHUNK),
            cost=self._cost,
        )
        members = tuple(self._slots.seated[slot] for slot in step.slots)
        works = tuple(self.pending[member] for member in members)
        for work in works:
            work.running = True
        one_each = self._batched and step.chunk == 1
        return Batch(step, members, works, self._rows(step, members) if one_each else ())

    def settle(self, batch: Batch, error: MeshError | None, took: float) -> None:
        """The step has ended, after `took` seconds. Without an error its tokens count as computed."""
        step = batch.step
        self._counted += 1
        self._chunks += step.chunk > 1
        self._tokens += len(step.slots) * step.chunk if error is None else 0
        self._riders += step.width - len(step.slots)
        if step.chunk == 1:
            self.patience = min(_PATIENCE * took, _MOST_PATIENCE)
        self._after_chunk = step.chunk > 1
        if error is None and step.chunk == 1:
            self._cost.observe(step.width, took)
        for member, work in zip(batch.members, batch.works, strict=True):
            work.running = False
            member.last_step = self._counted
            if error is None:
                member.length += step.chunk
                work.ids = work.ids[step.chunk :]
            if error is not None or not len(work.ids):
                self.end(member, error)

    def _close_gap(self) -> None:
        """Moves the last of those who want one token into a free slot between them."""
        if not self._batched:
            return
        slots = sorted(each.slot for each, work in self.pending.items() if len(work.ids) == 1)
        free = self._slots.free_between(slots[0], slots[-1]) if len(slots) > 1 else []
        if not free:
            return
        last = self._slots.seated[slots[-1]]
        if last.limit - last.length >= _WORTH_MOVING:
            self._kv.move(last.slot, free[0], last.length)
            self._slots.move(last, free[0])
            self._moves += 1

    def _others_decode(self) -> bool:
        """Whether anybody is between two tokens of an answer."""
        return any(
            each.length > 0
            and self._counted - each.last_step < _RECENT
            and (each not in self.pending or len(self.pending[each].ids) == 1)
            for each in self._slots.seated.values()
        )

    def _rows(self, step: Step, members: tuple[Seat, ...]) -> tuple[tuple[int, int], ...]:
        rows = []
        for slot in range(step.first, step.first + step.width):
            seat = self._slots.seated.get(slot)
            if seat in members:
                rows.append((int(self.pending[seat].ids[0]), seat.length))
            else:
                # A full sequence gets no more tokens, so its last row may be spoilt.
                rows.append((0, min(seat.length, self._context - 1) if seat else 0))
        return tuple(rows)


def _over(token: CancelToken) -> MeshError | None:
    """What ends the work of this token, if anything does."""
    try:
        token.check()
        if time.monotonic_ns() >= token.latest_start_ns:
            raise DeadlineExceeded("its latest start passed while it waited for a step")
    except MeshError as error:
        return error
    return None
