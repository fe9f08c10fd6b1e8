"""The engine of one sequence graph: who runs, in which step, on which slots.

Sandboxes' threads leave work and sleep; one thread takes it up step by step. A step is either one token for
each of several sequences, in one run of the graph, or a chunk of one sequence's prompt. Between steps the
lane may let others go first, what was cancelled leaves, and newcomers join. A step changes no sequence's
length until it has succeeded, so that one that was aborted can simply be taken again.

A batched run covers neighbouring slots. A sequence between them that has nothing to do rides along: its token
goes to the row after its last, which its next real token overwrites, and which attention doesn't read before.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from hailmesh.hail.arena import Arena
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, DeviceError, MeshError, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.kernels.contract import SequenceContract
from hailmesh.kernels.kv import KeyValues
from hailmesh.kernels.onnx import open_session
from hailmesh.kernels.schedule import LARGE_CHUNK, SMALL_CHUNK, Ready, Step, StepCost, choose
from hailmesh.kernels.sequence_handle import Sequence, Work
from hailmesh.kernels.slots import Slots
from hailmesh.kernels.steps import Steps

__all__ = ["EngineReport", "Sequence", "SequenceEngine"]

_PATIENCE = 0.2
"""How much of the last step's time the next one waits at most for sequences that were in the last ones."""
_RECENT = 8
"""Steps since its last one in which a sequence still counts as decoding."""
_WORTH_MOVING = 8
"""Tokens that a sequence may still get, below which closing a gap by moving it doesn't pay."""
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Counted since the engine began: `steps`, and `chunks`, those of them that took part of a prompt;
    `tokens` computed; `riders`, rows computed for nothing between others; `moves` of a sequence to another
    slot. Now: `open` sequences, those `waiting` for a step, and requests `queued` for a slot."""

    steps: int = 0
    chunks: int = 0
    tokens: int = 0
    riders: int = 0
    moves: int = 0
    open: int = 0
    waiting: int = 0
    queued: int = 0


class SequenceEngine:
    """A graph that fits `SequenceContract`, from a path or a descriptor, with room for `slots` sequences of
    up to `context` tokens in the arena. `chunk`: tokens of a prompt per step; None: many while nobody else
    decodes, few otherwise. Denied or ImageError for a graph that is refused or doesn't fit, OutOfArena if
    the slots don't fit."""

    def __init__(
        self,
        source: int | Path,
        *,
        context: int,
        slots: int,
        threads: int,
        lane: Lane,
        arena: Arena,
        chunk: int | None = None,
        name: str = "",
        owner: str = "sequences",
        spin: bool = False,
    ) -> None:
        if context < 1 or slots < 1 or (chunk is not None and chunk < 1):
            raise UsageError(f"context, slots and chunk are at least 1, not {context}, {slots} and {chunk}")
        session = open_session(source, threads=threads, spin=spin, loops=False, name=name)
        self._contract = SequenceContract.of(session, name)
        if self._contract.rows != -1 and context > self._contract.rows:
            raise UsageError(f"graph {name!r} takes contexts of {self._contract.rows}, not of {context}")
        self.context = context
        self.vocabulary = self._contract.vocabulary
        self.bound = self._contract.bound
        self.name = name
        self._lane = lane
        self._chunk = chunk
        rows = context if self._contract.rows == -1 else self._contract.rows
        self._kv = KeyValues(self._contract, rows, slots, arena, owner)
        self._steps = Steps(session, self._contract, self._kv, chunk or LARGE_CHUNK, name)
        self._cost = StepCost()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._slots = Slots(slots, self._lock)
        self._pending: dict[Sequence, Work] = {}
        self._gate: tuple[int, CancelToken] | None = None
        self._patience = 0.0
        self._counts = EngineReport()
        self._after_chunk = False
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name=f"sequences {name}", daemon=True)
        self._thread.start()

    def open(self, max_tokens: int, token: CancelToken, level: int) -> Sequence:
        """A new sequence of up to `max_tokens` tokens, prompt included, and never more than the context.
        Waits for a free slot, the highest level first; Overloaded if none came free by the token's
        deadline, Cancelled if it was cancelled."""
        if max_tokens < 1:
            raise UsageError(f"max_tokens is at least 1, not {max_tokens}")
        slot = self._slots.take(token, level)
        sequence = Sequence(self, slot, min(max_tokens, self.context), level)
        with self._lock:
            self._slots.seated[slot] = sequence
        return sequence

    def compute(self, sequence: Sequence, work: Work) -> None:
        """For `Sequence.feed`."""
        with self._lock:
            if not sequence.open or self._closing:
                raise UsageError("the sequence is closed; open a new one")
            if sequence.work is not None:
                raise UsageError("the sequence is being fed by another thread")
            sequence.work = self._pending[sequence] = work
            sequence.late = False
            if self._gate is not None and self._gate[0] < sequence.level:
                self._gate[1].cancel()
            self._changed.notify_all()
        forget = work.token.on_cancel(work.woken.set)
        try:
            while not work.done:
                work.woken.wait(min(max(work.token.remaining(), _POLL), threading.TIMEOUT_MAX))
                self._withdraw_if_over(sequence, work)
        finally:
            forget()
            sequence.work = None
        if work.error is not None:
            raise work.error

    def release(self, sequence: Sequence) -> None:
        """For `Sequence.close`."""
        with self._lock:
            if not sequence.open:
                return
            sequence.open = False
            while sequence.work is not None and sequence.work.running:
                self._changed.wait()
            work = self._pending.pop(sequence, None)
            if work is not None:
                work.finish(Cancelled("the sequence was closed"))
            sequence.binding = None
            del self._slots.seated[sequence.slot]
            self._slots.give(sequence.slot)
            self._changed.notify_all()

    def report(self) -> EngineReport:
        """What it has done so far."""
        with self._lock:
            return replace(
                self._counts,
                open=len(self._slots.seated),
                waiting=len(self._pending),
                queued=self._slots.queued,
            )

    def close(self) -> None:
        """Ends the engine after the step in progress, and gives its memory back. Feeds that wait, and
        whoever waits for a slot, get Cancelled. Idempotent."""
        with self._lock:
            self._closing = True
            self._slots.close()
            if self._gate is not None:
                self._gate[1].cancel()
            self._changed.notify_all()
        self._thread.join()
        self._kv.close()

    def __enter__(self) -> SequenceEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _withdraw_if_over(self, sequence: Sequence, work: Work) -> None:
        """Takes the work of a request that has ended out of the queue; not out of a running step."""
        with self._lock:
            if work.done:
                return
            work.woken.clear()
            if work.running:
                return
            error = _over(work.token)
            if error is not None:
                del self._pending[sequence]
                work.finish(error)
                if not self._pending and self._gate is not None:
                    self._gate[1].cancel()

    def _loop(self) -> None:
        self._lane.pin()
        error: MeshError = Cancelled("the engine was closed")
        try:
            while True:
                gate = self._await_work()
                if gate is None:
                    return
                try:
                    with self._lane.ticket(*gate):
                        self._advance()
                except Cancelled:
                    continue  # at the gate: more urgent work came, or all has gone
        except BaseException as failure:
            error = DeviceError(f"the engine of graph {self.name!r} failed: {failure!r}")
            raise
        finally:
            with self._lock:
                self._closing = True
                self._slots.close()
                for work in self._pending.values():
                    work.finish(error)
                self._pending.clear()

    def _await_work(self) -> tuple[int, CancelToken] | None:
        """Returns with what to pass the gate with, once there is work and those who are likely to join have
        had their chance; None when the engine closes."""
        with self._lock:
            while not self._closing:
                if not self._pending:
                    self._changed.wait()
                    continue
                until = time.monotonic() + self._patience
                while awaited := self._awaited():
                    left = until - time.monotonic()
                    if left <= 0 or self._closing:
                        break
                    self._changed.wait(left)
                for sequence in awaited:
                    sequence.late = True
                if self._pending and not self._closing:
                    self._gate = (max(each.level for each in self._pending), CancelToken())
                    return self._gate
        return None

    def _awaited(self) -> list[Sequence]:
        """Sequences that took part in one of the last two steps, and whose next token is likely to come."""
        if not self._contract.batched:
            return []
        return [
            each
            for each in self._slots.seated.values()
            if each not in self._pending and not each.late and self._counts.steps - each.last_step < 2
        ]

    def _advance(self) -> None:
        """Takes one step, with the lane's ticket in hand."""
        with self._lock:
            self._gate = None
            self._shed()
            if not self._pending:
                return
            self._close_gap()
            step = choose(
                [
                    Ready(each.slot, each.level, work.token.latest_start_ns, len(work.ids))
                    for each, work in self._pending.items()
                ],
                batched=self._contract.batched,
                after_chunk=self._after_chunk,
                chunk=self._chunk or (SMALL_CHUNK if self._others_decode() else LARGE_CHUNK),
                cost=self._cost,
            )
            members = [self._slots.seated[slot] for slot in step.slots]
            for member in members:
                self._pending[member].running = True
            rows = self._rows(step, members)
        began = time.monotonic()
        error: MeshError | None = None
        try:
            if step.chunk == 1 and self._contract.batched:
                self._append_one_each(step, members, rows)
            else:
                self._append(members[0], step.chunk)
        except MeshError as failure:
            error = failure
        took = time.monotonic() - began
        with self._lock:
            self._count(step)
            self._settle(members, step.chunk, error)
            self._patience = _PATIENCE * took
            self._after_chunk = step.chunk > 1
            if error is None and step.chunk == 1:
                self._cost.observe(step.width, took)
            self._changed.notify_all()

    def _shed(self) -> None:
        for sequence, work in list(self._pending.items()):
            error = _over(work.token)
            if error is not None:
                del self._pending[sequence]
                work.finish(error)

    def _close_gap(self) -> None:
        """Moves the last of those who want one token into a free slot between them."""
        if not self._contract.batched:
            return
        slots = sorted(each.slot for each, work in self._pending.items() if len(work.ids) == 1)
        free = self._slots.free_between(slots[0], slots[-1]) if len(slots) > 1 else []
        if not free:
            return
        last = self._slots.seated[slots[-1]]
        if last.limit - last.length >= _WORTH_MOVING:
            self._kv.move(last.slot, free[0], last.length)
            self._slots.move(last, free[0])
            self._counts = replace(self._counts, moves=self._counts.moves + 1)

    def _others_decode(self) -> bool:
        """Whether anybody is between two tokens of an answer."""
        return any(
            each.length > 0
            and self._counts.steps - each.last_step < _RECENT
            and (each not in self._pending or len(self._pending[each].ids) == 1)
            for each in self._slots.seated.values()
        )

    def _rows(self, step: Step, members: list[Sequence]) -> list[tuple[int, int]]:
        """(token, position) for each slot of a batched step."""
        rows = []
        for slot in range(step.first, step.first + step.width):
            sequence = self._slots.seated.get(slot)
            if sequence in members:
                rows.append((int(self._pending[sequence].ids[0]), sequence.length))
            else:
                # A full sequence gets no more tokens, so its last row may be spoilt.
                rows.append((0, min(sequence.length, self.context - 1) if sequence else 0))
        return rows

    def _append_one_each(self, step: Step, members: list[Sequence], rows: list[tuple[int, int]]) -> None:
        tokens = [self._pending[member].token for member in members]
        ends = max(token.deadline_ns for token in tokens)
        token = tokens[0] if len(tokens) == 1 else CancelToken(ends)
        logits = self._steps.append_one_each(step.first, rows, token)
        for member in members:
            member.logits[:] = logits[member.slot - step.first]

    def _append(self, member: Sequence, chunk: int) -> None:
        work = self._pending[member]
        if member.binding is None:
            member.binding = self._steps.alone(member.slot, member.inputs)
        logits = self._steps.append(member.binding, work.ids[:chunk], member.length, work.token)
        if chunk == len(work.ids):
            member.logits[:] = logits

    def _count(self, step: Step) -> None:
        counts = self._counts
        self._counts = replace(
            counts,
            steps=counts.steps + 1,
            chunks=counts.chunks + (step.chunk > 1),
            tokens=counts.tokens + len(step.slots) * step.chunk,
            riders=counts.riders + step.width - len(step.slots),
        )

    def _settle(self, members: list[Sequence], chunk: int, error: MeshError | None) -> None:
        for member in members:
            work = self._pending[member]
            work.running = False
            member.last_step = self._counts.steps
            if error is None:
                member.length += chunk
                work.ids = work.ids[chunk:]
            if error is not None or not len(work.ids):
                del self._pending[member]
                work.finish(error)


def _over(token: CancelToken) -> MeshError | None:
    """What ends the work of this token, if anything does."""
    try:
        token.check()
        if time.monotonic_ns() >= token.latest_start_ns:
            raise DeadlineExceeded("its latest start passed while it waited for a step")
    except MeshError as error:
        return error
    return None
