"""Handles: small numbers for leases that go stale when the lease ends, even if its place is used again."""

from __future__ import annotations

import weakref

from hailmesh.hail.errors import NotFound
from hailmesh.hail.lease import Lease

INDEX_BITS = 24
_INDEX = (1 << INDEX_BITS) - 1


def generation(handle: int) -> int:
    """How often the handle's place had been used when it was made, counting from 1."""
    return handle >> INDEX_BITS


class Handles:
    """A handle is generation << 24 | place. Not thread-safe: the arena's lock guards it."""

    def __init__(self) -> None:
        self._leases: list[weakref.ref[Lease] | None] = []
        self._generations: list[int] = []
        self._idle: list[int] = []

    def make(self) -> int:
        """A handle of no lease yet."""
        if self._idle:
            place = self._idle.pop()
        else:
            place = len(self._leases)
            self._leases.append(None)
            self._generations.append(0)
        self._generations[place] += 1
        return self._generations[place] << INDEX_BITS | place

    def bind(self, handle: int, lease: Lease) -> None:
        self._leases[handle & _INDEX] = weakref.ref(lease)

    def unbind(self, handle: int) -> None:
        """From now on the handle is stale; its place is still taken."""
        self._leases[handle & _INDEX] = None

    def free(self, handle: int) -> None:
        """The place of a stale handle may be used again."""
        self._idle.append(handle & _INDEX)

    def resolve(self, handle: int) -> Lease:
        """The lease of a handle; NotFound if it is stale or was never one."""
        place = handle & _INDEX
        known = handle >= 0 and place < len(self._leases) and self._generations[place] == generation(handle)
        bound = self._leases[place] if known else None
        lease = bound() if bound is not None else None
        if lease is None:
            raise NotFound(f"handle {handle:#x} is of no lease that lives; was it released?")
        return lease
