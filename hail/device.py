"""Devices: the scheduling abstraction, and how an adapter is found and chosen.

An adapter is one file in `hail/devices/`, named as the device is, with a class `Adapter` whose `rank` orders
the automatic choice: the highest that works is taken, 0 is never taken unasked. What adapters share lies in
`hailmesh.hail.adapter.BaseAdapter`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from hailmesh.hail import devices
from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Coherence, DType, MemoryType
from hailmesh.hail.errors import DeviceError, MeshError, NotFound
from hailmesh.hail.work import Work


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a probe found. `compute_units`: cores or multiprocessors this process may use; memory in bytes;
    `copy_bandwidth`: bytes a second, measured, read and write counted once; `integrated`: the device works
    in the host's memory; `computes`: whether submitted work is really done (not by `null`)."""

    name: str
    model: str
    compute_units: int
    memory: int
    copy_bandwidth: float
    integrated: bool
    memory_type: MemoryType
    coherence: Coherence
    dtypes: frozenset[DType]
    computes: bool = True


class State(Enum):
    """Of submitted work."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Device(Protocol):
    """A device that is open. Thread-safe."""

    rank: ClassVar[int]

    def __init__(self, arena: Arena) -> None: ...

    def probe(self) -> DeviceInfo:
        """What this device is; DeviceError if it isn't there. Measured once, then remembered."""
        ...

    def alloc(self, dtype: DType, shape: tuple[int, ...], *, owner: str) -> Lease:
        """Zeroed memory that the device works in. OutOfArena if there is none."""
        ...

    def submit(self, run: Callable[[], object], *, priority: int = 0) -> Work:
        """Queues `run` and returns at once; higher priorities go first, equals in order. What `run` raises
        becomes the work's error."""
        ...

    def query(self, work: Work) -> State:
        """What became of submitted work, at once."""
        ...

    def close(self) -> None:
        """Ends after what runs; what is queued ends with Cancelled. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Which device was chosen, and why: for the log, `doctor` and `/v1/node`. `fallback`: not the one that
    was asked for, or would have been preferred."""

    chosen: str
    reason: str
    fallback: bool
    device: Device


def discover() -> tuple[str, ...]:
    """The names of all adapters, sorted; nothing is imported or probed. A file `_name.py` is none."""
    found = (module.name for module in pkgutil.iter_modules(devices.__path__))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def _adapter(name: str) -> type[Device]:
    try:
        module = importlib.import_module(f"{devices.__name__}.{name}")
    except ImportError as error:
        raise DeviceError(f"device {name!r} needs a package that isn't installed: {error}") from error
    adapter: type[Device] = module.Adapter
    return adapter


def open_device(name: str, arena: Arena) -> Device:
    """The adapter of that name, allocating from `arena`. NotFound if there is no such adapter, DeviceError
    if what it needs isn't installed."""
    if name not in discover():
        raise NotFound(f"no device adapter {name!r}; there are {', '.join(discover())}")
    return _adapter(name)(arena)


def choose(arena: Arena, asked: str | None = None) -> Choice:
    """The device asked for, or else the highest-ranked whose probe succeeds. A fallback says so, and why
    each one before it was passed over. DeviceError if none is left."""
    passed: list[str] = []
    ranked: list[tuple[int, str]] = []
    for name in discover():
        if name == asked:
            continue
        try:
            ranked.append((_adapter(name).rank, name))
        except MeshError as error:
            passed.append(f"{name}: {error}")
    order = [name for rank, name in sorted(ranked, reverse=True) if rank > 0]
    for name in [asked, *order] if asked else order:
        try:
            device = open_device(name, arena)
        except MeshError as error:
            passed.append(f"{name}: {error}")
            continue
        try:
            info = device.probe()
        except MeshError as error:
            device.close()
            passed.append(f"{name}: {error}")
            continue
        fallback = name != asked if asked else bool(passed)
        why = "asked for" if name == asked else "fallback" if fallback else "the best there is"
        return Choice(name, "; ".join([f"{info.model}, {why}", *passed]), fallback, device)
    raise DeviceError(f"no device works: {'; '.join(passed) or 'there is no adapter'}")
