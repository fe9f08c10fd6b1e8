"""A device that accepts work and does none of it: what is left is the cost of everything around it."""

from __future__ import annotations

from collections.abc import Callable

from hailmesh.hail.adapter import BaseAdapter
from hailmesh.hail.buffer import Coherence, DType, MemoryType
from hailmesh.hail.device import DeviceInfo


class Adapter(BaseAdapter):
    """Never chosen unless asked for by name."""

    rank = 0

    def _probe(self) -> DeviceInfo:
        return DeviceInfo(
            name="null",
            model="null (does no work)",
            compute_units=0,
            memory=self._arena.size,
            copy_bandwidth=0.0,
            integrated=True,
            memory_type=MemoryType.HOST,
            coherence=Coherence.COHERENT,
            dtypes=frozenset(DType),
            computes=False,
        )

    def _perform(self, run: Callable[[], object]) -> None:
        pass
