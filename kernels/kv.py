"""Keys and values of all sequences of one graph: slots in arena memory.

Each layer's keys, and its values, are one block [slots, heads, rows, head_size], so that neighbouring slots
are what a batched run takes as [B, heads, rows, head_size], and a single slot is a batch of one.

A slot isn't wiped between sequences, and needn't be. A sequence of length n has itself written rows 0 to
n - 1 of its slot, attention reads no row after seqlens_k, and the guest has no way to rows or to seqlens_k:
what an earlier sequence left there can't reach it. The arena zeroes the blocks when they are leased, and
again for whoever leases them next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hailmesh.hail.arena import Arena, Stage
from hailmesh.kernels.contract import SequenceContract


class KeyValues:
    """Leases all slots at once; OutOfArena if they don't fit. `rows` tokens fit a slot."""

    def __init__(self, contract: SequenceContract, rows: int, slots: int, arena: Arena, owner: str) -> None:
        self.slots = slots
        self.shape = (contract.heads, rows, contract.head_size)
        whole = (slots, *self.shape)
        nbytes = int(np.prod(whole, dtype=np.int64)) * contract.cache_dtype.itemsize
        self.slot_bytes = nbytes // slots
        self._leases = []
        try:
            for _ in contract.caches:
                self._leases.append(
                    arena.lease(
                        nbytes, owner=owner, dtype=contract.cache_dtype, shape=whole, stage=Stage.INFER
                    )
                )
        except BaseException:
            self.close()
            raise
        self._arrays: list[npt.NDArray[np.generic]] = [lease.buffer.numpy() for lease in self._leases]

    def addresses(self, slot: int) -> list[int]:
        """Where slot `slot` begins, per cache in the contract's order."""
        return [lease.buffer.address + slot * self.slot_bytes for lease in self._leases]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a sequence of `length` tokens to another slot."""
        for array in self._arrays:
            array[target, :, :length] = array[source, :, :length]

    def close(self) -> None:
        """Gives the memory back; nothing may be bound to it any more."""
        self._arrays = []
        for lease in self._leases:
            lease.release()
