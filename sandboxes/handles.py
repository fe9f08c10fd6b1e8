"""What a guest's handles stand for: tensors, graphs and sequences, in one numbering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.lease import Lease
from hailmesh.sandboxes.errno import CallError, Errno

_LAST = 2**31 - 1
T = TypeVar("T")


class Handles:
    """Numbers from 1 on, each given out once in an instance's life: a handle that was dropped never comes
    to mean anything else."""

    def __init__(self) -> None:
        self._entries: dict[int, object] = {}
        self._next = 1

    def add(self, entry: object) -> int:
        """EMFILE when the numbers are used up."""
        if self._next > _LAST:
            raise CallError(Errno.EMFILE, "this instance has used up all handles there are")
        handle = self._next
        self._next += 1
        self._entries[handle] = entry
        return handle

    def get(self, handle: int, kind: type[T]) -> T:
        """EBADF unless it is the handle of a living `kind`."""
        entry = self._entries.get(handle)
        if isinstance(entry, kind):
            return entry
        found = "nothing" if entry is None else f"a {type(entry).__name__.lower()}"
        raise CallError(Errno.EBADF, f"handle {handle} is {found}, expected a {kind.__name__.lower()}")

    def remove(self, handle: int) -> None:
        del self._entries[handle]

    def of(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        """All living ones of a kind; may be removed meanwhile."""
        if not self._entries:
            return iter(())
        return ((handle, entry) for handle, entry in list(self._entries.items()) if isinstance(entry, kind))

    def count(self, kind: type) -> int:
        return sum(isinstance(entry, kind) for entry in self._entries.values())


class Tensor:
    """A tensor of one instance. Its lease ends with the last of its holders: the handle, sequences that read
    it, the reply. A part of the request has no lease here, since the node holds it."""

    __slots__ = ("_holders", "buffer", "lease", "window", "writable")

    def __init__(self, buffer: Buffer, lease: Lease | None) -> None:
        self.buffer = buffer
        self.lease = lease
        self.window = 0
        """The guest's address of its bytes while they are mapped, else 0."""
        self.writable = False
        """Whether that window is one to write."""
        self._holders = 1

    @property
    def frozen(self) -> bool:
        return self.lease is None or self.lease.frozen

    def freeze(self) -> None:
        """It can't be mapped to write or be an output any more. A window to write that is open already stays
        one while the run lasts: only the guest itself sees the tensor until then."""
        if self.lease is not None:
            self.lease.freeze()

    def hold(self) -> Tensor:
        self._holders += 1
        return self

    def let_go(self) -> None:
        self._holders -= 1
        if self._holders == 0 and self.lease is not None:
            self.lease.release()
