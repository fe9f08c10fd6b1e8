"""The engine of one sequence graph: sandboxes' threads take its steps together, one step at a time.

A step is either one token for each of several sequences, in one run of the graph, or a chunk of one
sequence's prompt. Of the threads that wait for tokens one leads: it takes step after step, for all, until its
own tokens are there, and then leaves the lead to another; so a sequence that is alone waits for no other
thread. Between steps the lane may let others go first, what was cancelled leaves, and newcomers join. A step
changes no sequence's length until it has succeeded, so that one that was aborted can simply be taken again.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from hailmesh.hail.arena import Arena
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, DeviceError, MeshError, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.kernels.batch import Batch, Board
from hailmesh.kernels.contract import SequenceContract
from hailmesh.kernels.kv import KeyValues
from hailmesh.kernels.onnx import open_session
from hailmesh.kernels.report import EngineReport
from hailmesh.kernels.schedule import LARGE_CHUNK
from hailmesh.kernels.seat import Seat, Work
from hailmesh.kernels.sequence_handle import Sequence
from hailmesh.kernels.slots import Slots
from hailmesh.kernels.steps import Steps

__all__ = ["EngineReport", "Sequence", "SequenceEngine"]

_POLL = 0.05


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
        contract = SequenceContract.of(session, name)
        if contract.rows != -1 and context > contract.rows:
            raise UsageError(f"graph {name!r} takes contexts of {contract.rows}, not of {context}")
        self.context = context
        self.vocabulary = contract.vocabulary
        self.bound = contract.bound
        self.name = name
        self._lane = lane
        rows = context if contract.rows == -1 else contract.rows
        self._kv = KeyValues(contract, rows, slots, arena, owner)
        self._steps = Steps(session, contract, self._kv, chunk or LARGE_CHUNK, name)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._slots = Slots(slots, self._lock)
        self._board = Board(self._slots, self._kv, context, chunk, contract.batched)
        self._led = False
        self._gate: tuple[int, CancelToken] | None = None
        # Tokens of the gate and of shared steps, used again and again: making one takes a while.
        self._pass, self._until = CancelToken(), CancelToken()
        self._closing = False

    def open(self, max_tokens: int, token: CancelToken, level: int) -> Sequence:
        """A new sequence of up to `max_tokens` tokens, prompt included, and never more than the context.
        Waits for a free slot, the highest level first; Overloaded if none came free by the token's
        deadline, Cancelled if it was cancelled."""
        if max_tokens < 1:
            raise UsageError(f"max_tokens is at least 1, not {max_tokens}")
        slot = self._slots.take(token, level)
        logits = np.zeros(self.vocabulary, np.float32)
        seat = Seat(slot, min(max_tokens, self.context), level, logits)
        with self._lock:
            self._slots.seated[slot] = seat
        return Sequence(self, seat)

    def report(self) -> EngineReport:
        """What it has done so far, and how things stand."""
        with self._lock:
            return self._board.report()

    def close(self) -> None:
        """Ends the engine after the step in progress, and gives its memory back. Feeds that wait, and
        whoever waits for a slot, get Cancelled. Idempotent."""
        with self._lock:
            self._closing = True
            self._slots.close()
            for seat, work in list(self._board.pending.items()):
                if not work.running:
                    self._board.end(seat, Cancelled("the engine was closed"))
            self._nudge()
            while self._led:
                self._changed.wait()
        self._kv.close()

    def __enter__(self) -> SequenceEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def compute(self, seat: Seat, work: Work) -> None:
        """For `Sequence.feed`."""
        with self._lock:
            if not seat.open or self._closing:
                raise UsageError("the sequence is closed; open a new one")
            if seat.work is not None:
                raise UsageError("the sequence is being fed by another thread")
            seat.work = self._board.pending[seat] = work
            seat.late = False
            if self._led:
                self._join(seat.level)
            else:
                self._led = work.leads = True
        forget = work.token.on_cancel(lambda: self._interrupt(work))
        try:
            while not work.done:
                if work.leads:
                    self._lead(work)
                else:
                    self._follow(seat, work)
        finally:
            forget()
            with self._lock:
                seat.work = None
                if work.leads:
                    self._pass_on()
        if work.error is not None:
            raise work.error

    def release(self, seat: Seat) -> None:
        """For `Sequence.close`."""
        with self._lock:
            if not seat.open:
                return
            seat.open = False
            while seat.work is not None and seat.work.running:
                self._changed.wait()
            if seat in self._board.pending:
                self._board.end(seat, Cancelled("the sequence was closed"))
            seat.binding = None
            del self._slots.seated[seat.slot]
            self._slots.give(seat.slot)
            self._nudge()

    def _join(self, level: int) -> None:
        """Work of `level` has come while another thread leads."""
        if self._gate is not None and self._gate[0] < level:
            self._gate[1].cancel()
        self._changed.notify_all()

    def _nudge(self) -> None:
        """Makes the leader look again, wherever it waits."""
        if self._gate is not None:
            self._gate[1].cancel()
        self._changed.notify_all()

    def _interrupt(self, work: Work) -> None:
        """The request of `work` was cancelled."""
        with self._lock:
            work.woken.set()
            if work.leads:
                self._nudge()

    def _follow(self, seat: Seat, work: Work) -> None:
        """Sleeps until something may have changed for `work`, and ends it once its request has ended; not
        in a running step."""
        work.woken.wait(min(max(work.token.remaining(), _POLL), threading.TIMEOUT_MAX))
        with self._lock:
            work.woken.clear()
            if not (work.done or work.leads or work.running):
                self._board.end_if_over(seat)

    def _lead(self, own: Work) -> None:
        """Takes one step, once those who are likely to join have had their chance and the lane lets it."""
        gate = self._gather(own)
        if gate is None:
            return
        try:
            with self._lane.ticket(*gate):
                with self._lock:
                    self._gate = None
                    batch = self._board.begin()
                if batch is not None:
                    self._take(batch)
        except (Cancelled, DeadlineExceeded):
            # Of the gate: more urgent work came, the leader's own has ended, or the engine closes.
            with self._lock:
                self._gate = None

    def _gather(self, own: Work) -> tuple[int, CancelToken] | None:
        """What to pass the gate with; None if the leader's own request has ended."""
        with self._lock:
            until = time.monotonic() + self._board.patience
            while (awaited := self._board.awaited()) and not self._closing:
                left = until - time.monotonic()
                if left <= 0:
                    for seat in awaited:
                        seat.late = True
                    break
                self._changed.wait(left)
            self._board.shed()
            if own.done:
                return None
            level = max(each.level for each in self._board.pending)
            ends = min(work.token.deadline_ns for work in self._board.pending.values())
            if self._pass.cancelled:
                self._pass = CancelToken()
            self._pass.deadline_ns = self._pass.latest_start_ns = ends
            self._gate = (level, self._pass)
            return self._gate

    def _take(self, batch: Batch) -> None:
        began = time.monotonic()
        error: MeshError | None = DeviceError(f"the step of graph {self.name!r} was broken off")
        try:
            if batch.rows:
                self._append_one_each(batch)
            else:
                self._append(batch)
            error = None
        except MeshError as failure:
            error = failure
        finally:
            with self._lock:
                self._board.settle(batch, error, time.monotonic() - began)
                self._changed.notify_all()

    def _append_one_each(self, batch: Batch) -> None:
        # One that is cancelled doesn't break off the others' step, which is short.
        self._until.deadline_ns = max(work.token.deadline_ns for work in batch.works)
        logits = self._steps.append_one_each(batch.step.first, batch.rows, self._until)
        for member in batch.members:
            member.logits[:] = logits[member.slot - batch.step.first]

    def _append(self, batch: Batch) -> None:
        (member,), (work,) = batch.members, batch.works
        if member.binding is None:
            member.binding = self._steps.alone(member.slot, member.bound)
        chunk = batch.step.chunk
        logits = self._steps.append(member.binding, work.ids[:chunk], member.length, work.token)
        if chunk == len(work.ids):
            member.logits[:] = logits

    def _pass_on(self) -> None:
        """The leader leaves: the most urgent of those who wait leads from now on."""
        pending = self._board.pending
        if pending:
            following = max(pending, key=lambda each: (each.level, -pending[each].token.latest_start_ns))
            pending[following].leads = True
            pending[following].woken.set()
        else:
            self._led = False
        self._changed.notify_all()
