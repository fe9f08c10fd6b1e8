"""A lease: the right to one block of an arena, until it is released."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.report import Stage

if TYPE_CHECKING:
    from hailmesh.hail.arena import Arena

Done = Callable[[], bool] | threading.Event
"""Says whether whoever may still write a released block has finished."""


class Block:
    """The arena's record of one leased block; `start` and `length` in granules. Guarded by its lock."""

    __slots__ = (
        "done",
        "handle",
        "length",
        "modality",
        "nbytes",
        "owner",
        "read_at",
        "retired",
        "span",
        "stage",
        "start",
    )

    def __init__(
        self, start: int, length: int, nbytes: int, owner: str, modality: str, stage: Stage, span: bool
    ) -> None:
        self.start = start
        self.length = length
        self.nbytes = nbytes
        self.owner = owner
        self.modality = modality
        self.stage = stage
        self.span = span
        self.handle = -1
        self.retired = False
        self.read_at: float | None = None
        self.done: Done | None = None

    def finished(self) -> bool:
        """Whether nobody can write the block any more."""
        if self.done is None:
            return True
        try:
            return self.done.is_set() if isinstance(self.done, threading.Event) else bool(self.done())
        except Exception:
            # It can't tell, so the block may still be written: losing it is the lesser evil.
            return False


class Lease:
    """One block, owned. Use as a context manager, or call `release`; a lease that is neither is given back
    when collected, with a ResourceWarning. `handle` packs (generation, index) and goes stale on release."""

    __slots__ = ("__weakref__", "_arena", "_block", "_frozen", "_released", "buffer", "handle")

    def __init__(self, arena: Arena, block: Block, buffer: Buffer) -> None:
        self._arena = arena
        self._block = block
        self._frozen = False
        self._released = False
        self.buffer = buffer
        self.handle = block.handle

    @property
    def owner(self) -> str:
        return self._block.owner

    @property
    def modality(self) -> str:
        return self._block.modality

    @property
    def room(self) -> int:
        """Bytes of the block, whole granules; `buffer.nbytes` of them are content."""
        return self._block.nbytes

    @property
    def stage(self) -> Stage:
        return self._block.stage

    @stage.setter
    def stage(self, stage: Stage) -> None:
        self._arena._move(self._block, stage)

    def freeze(self) -> None:
        """From now on nobody may write: others hold views of the content. For good."""
        self._frozen = True

    @property
    def frozen(self) -> bool:
        return self._frozen

    def read_done(self) -> None:
        """The last reader has finished; what the block is kept for from here on counts as redundancy."""
        self._arena._mark_read(self._block)

    def quarantine(self, done: Done) -> None:
        """Once released, the block goes back to the pool only when `done` says so (an Event that is set, or
        a function that returns True): an executor or a DMA that timed out may still write it. The function
        is called with the arena locked: it must be quick, and not call the arena. If it raises, that counts
        as not done."""
        self._block.done = done

    @property
    def released(self) -> bool:
        return self._released

    def release(self) -> None:
        """Gives the block back; idempotent. Views of its bytes must no longer be used."""
        self._released = True
        self._arena._release(self._block)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        if not getattr(self, "_released", True):
            self._released = True
            self._arena._orphan(self._block)
            warnings.warn(
                f"a lease of {self._block.nbytes} bytes of {self._block.owner!r} was never released",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
