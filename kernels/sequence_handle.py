"""One autoregressive sequence, as a sandbox holds it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import TooLarge, UsageError
from hailmesh.kernels.executor import TensorSpec, describe
from hailmesh.kernels.seat import Seat, Work


class Engine(Protocol):
    """What a sequence asks of its engine."""

    vocabulary: int
    bound: tuple[TensorSpec, ...]

    def compute(self, seat: Seat, work: Work) -> None:
        """Returns once the work is done; raises its error."""

    def release(self, seat: Seat) -> None:
        """Frees the slot, once no step runs on it."""


class Sequence:
    """In a slot of an engine; made by `SequenceEngine.open`. For one thread at a time."""

    def __init__(self, engine: Engine, seat: Seat) -> None:
        self._engine = engine
        self._seat = seat

    @property
    def position(self) -> int:
        """How many tokens it holds; after a feed that failed, how many of them were computed."""
        return self._seat.length

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """float32 [vocabulary] after the last token, in place until the next feed; zeros before the first."""
        return self._seat.logits

    def bind(self, name: str, buffer: Buffer) -> None:
        """Gives one of the graph's bound inputs. Before the first feed; the buffer's lease must be held
        until the sequence is closed. UsageError names what doesn't fit."""
        if self._seat.length or not self._seat.open:
            raise UsageError(f"input {name!r} must be bound before the first feed of an open sequence")
        for spec in self._engine.bound:
            if spec.name == name:
                if not spec.admits(buffer):
                    raise UsageError(f"input {name!r}: expected {spec}, got {describe(buffer)}")
                self._seat.bound[name] = buffer
                self._seat.binding = None
                return
        known = ", ".join(spec.name for spec in self._engine.bound) or "none"
        raise UsageError(f"the graph has no bound input {name!r}; it has {known}")

    def feed(self, ids: npt.NDArray[np.int32] | npt.NDArray[np.int64], token: CancelToken) -> None:
        """Appends tokens, int32 or int64 [n], and returns once they are computed: `logits` are those after
        the last. TooLarge beyond the context or max_tokens, UsageError for what is no token; Cancelled and
        DeadlineExceeded as the token says, within one step; DeviceError if the step failed. After an error
        `position` tells what was computed, and the sequence can go on from there."""
        checked = self._checked(ids)
        self._seat.woken.clear()
        self._engine.compute(self._seat, Work(checked, token, self._seat.woken))

    def close(self) -> None:
        """Frees its slot. Idempotent; waits for the step that it is part of, if one is running."""
        self._engine.release(self._seat)

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _checked(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        array = np.asarray(ids)
        if array.dtype not in (np.int32, np.int64) or array.ndim != 1 or not len(array):
            raise UsageError(
                f"expected token ids as int32 or int64 [n], got {array.dtype} {list(array.shape)}"
            )
        # Of one token, the usual case, without two passes of numpy.
        low, high = (int(array[0]),) * 2 if len(array) == 1 else (int(array.min()), int(array.max()))
        if low < 0 or high >= self._engine.vocabulary:
            raise UsageError(
                f"token ids lie from 0 to {self._engine.vocabulary - 1}, got {low if low < 0 else high}"
            )
        seat = self._seat
        if seat.length + len(array) > seat.limit:
            raise TooLarge(
                f"{len(array)} tokens don't fit: the sequence holds {seat.length} and may hold {seat.limit}"
            )
        missing = [spec.name for spec in self._engine.bound if spec.name not in seat.bound]
        if missing:
            raise UsageError(f"inputs must be bound before the first feed; missing: {', '.join(missing)}")
        return array.astype(np.int64)
