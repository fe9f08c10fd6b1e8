"""A request, as every layer below HTTP knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.router.qos import Budgets

if TYPE_CHECKING:
    from hailmesh.hail.arena import Lease

TENSOR = "tensor"
"""The media type of an input that came with a dtype and a shape."""

Grown = Callable[[int, bool], None]
"""Called with the bytes that a streamed input has by now, and whether it has ended."""


@dataclass(slots=True)
class Input:
    """One part of a request: `size` bytes of content at the start of an arena lease.

    `dtype` and `shape` are set for tensors, whose media type is TENSOR. A `streamed` input grows while the
    unit runs: its lease is the room it has, `size` what has come so far.
    """

    name: str
    media_type: str
    lease: Lease
    size: int
    dtype: DType | None = None
    shape: tuple[int, ...] | None = None
    streamed: bool = False
    ended: bool = True
    _listener: Grown | None = field(default=None, repr=False)

    @property
    def buffer(self) -> Buffer:
        return self.lease.buffer

    @property
    def room(self) -> int:
        """Bytes that the lease can hold."""
        return self.lease.buffer.nbytes

    def grow(self, size: int, ended: bool = False) -> None:
        """The writer of a streamed input says that its first `size` bytes are there."""
        self.size, self.ended = size, ended
        if self._listener is not None:
            self._listener(size, ended)

    def on_growth(self, listener: Grown) -> None:
        """Whoever runs the request hears of growth from now on, and at once of what is already there."""
        self._listener = listener
        listener(self.size, self.ended)


@dataclass(slots=True)
class Request:
    """`arrival_ns` is CLOCK_MONOTONIC, `level` the arbiter's (higher is more urgent), `size` the measure that
    service times are predicted by (bytes of input).

    The inputs' leases are counted by holders, one at first: who made the request. Whoever gives them to
    another process calls `retain`, and `release` once that process can't read them any more; the last
    release returns the leases.
    """

    id: str
    unit: str
    inputs: tuple[Input, ...]
    qos_class: str
    budgets: Budgets
    tenant: str
    penalty: float
    arrival_ns: int
    level: int
    token: CancelToken
    size: float
    _holders: int = field(default=1, repr=False)

    @property
    def deadline_ns(self) -> int:
        """When it must be done, in CLOCK_MONOTONIC nanoseconds."""
        return self.arrival_ns + int(self.budgets.total * 1e9)

    @property
    def first_due_ns(self) -> int:
        """When its first result is due: what orders equals in the queue."""
        return self.arrival_ns + int(self.budgets.first * 1e9)

    def retain(self) -> None:
        if self._holders <= 0:
            raise RuntimeError(f"request {self.id}: its inputs were already returned to the arena")
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            for part in self.inputs:
                part.lease.release()
