"""The CPU as a device: it works in the arena itself."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from functools import cache
from pathlib import Path

from hailmesh.hail.adapter import BaseAdapter
from hailmesh.hail.buffer import Coherence, DType, MemoryType
from hailmesh.hail.device import DeviceInfo

_PROBE_BYTES = 32 << 20
_PROBE_RUNS = 5


class Adapter(BaseAdapter):
    rank = 10

    def _probe(self) -> DeviceInfo:
        return DeviceInfo(
            name="cpu",
            model=_model(),
            compute_units=len(os.sched_getaffinity(0)),
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            copy_bandwidth=copy_bandwidth(),
            integrated=True,
            memory_type=MemoryType.HOST,
            coherence=Coherence.COHERENT,
            dtypes=frozenset(DType),
        )


@cache
def copy_bandwidth() -> float:
    """Bytes a second that one core copies between two blocks larger than its caches; the best of a few
    runs, since other work only ever slows it. About 50 ms, once per process."""
    source, destination = ctypes.create_string_buffer(_PROBE_BYTES), ctypes.create_string_buffer(_PROBE_BYTES)
    best = float("inf")
    for _ in range(_PROBE_RUNS):
        began = time.perf_counter()
        ctypes.memmove(destination, source, _PROBE_BYTES)
        best = min(best, time.perf_counter() - began)
    return _PROBE_BYTES / best


def _model() -> str:
    """The processor's name: from /proc/cpuinfo (x86-64), or the device tree's board (aarch64)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    board = Path("/proc/device-tree/model")
    return board.read_text().rstrip("\0") if board.exists() else platform.machine()
