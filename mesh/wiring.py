"""The composition root: the one place that knows all the layers, and puts a node together."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from typing import Any

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.errors import UsageError
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import Lanes
from hailmesh.mesh.config import Config, parse_size
from hailmesh.mesh.events import Events, Logs
from hailmesh.mesh.ledger import total
from hailmesh.mesh.loader import Loader
from hailmesh.mesh.node import Node
from hailmesh.mesh.slots import Slots
from hailmesh.mesh.state import ActiveUnits
from hailmesh.mesh.units import Units
from hailmesh.mesh.version import UnitVersion
from hailmesh.oci.store import Store
from hailmesh.router.arbiter import Arbiter
from hailmesh.router.predictor import Predictor
from hailmesh.router.routes import Routes
from hailmesh.sandboxes.aot import ArtifactCache

NODE_ROW = 0
"""The node's own row of the gate page."""


def build(config: Config, stack: ExitStack) -> Node:
    """A node with nothing loaded yet. `stack` gets what must be undone at the end.

    UsageError if another node uses the same state folder.
    """
    config.state.mkdir(parents=True, exist_ok=True)
    _lock(config, stack)
    arena = Arena.create(parse_size(config.arena, of=total()))
    stack.callback(arena.close)
    page = stack.enter_context(arena.lease(GRANULE, owner="gate"))
    gate = Gate(page.buffer.address, NODE_ROW)
    events, logs = Events(), Logs()

    def log_line(version: UnitVersion, header: dict[str, Any], line: str) -> None:
        logs.add(version.name, version.version, header, line)

    lanes = Lanes.split(gate, wide=config.lanes == "wide")
    loader = Loader(
        config=config,
        store=Store(config.store),
        artifacts=ArtifactCache(config.artifacts),
        arena=arena,
        gate=gate,
        lanes=lanes,
        on_log=log_line,
    )
    slots = Slots(Arbiter(Predictor(), config.queue))
    units = Units(
        loader=loader,
        routes=Routes(),
        slots=slots,
        events=events,
        active=ActiveUnits(config.state),
        drain=config.drain,
    )
    return Node(config=config, arena=arena, lanes=lanes, units=units, slots=slots, events=events, logs=logs)


def _lock(config: Config, stack: ExitStack) -> None:
    """One node per state folder; the kernel drops the lock with the process, however it ends."""
    path = config.state / "node.lock"
    file = stack.enter_context(path.open("a+", encoding="ascii"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        raise UsageError(
            f"another node (process {holder}) uses {config.state}: stop it, or set another state folder"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
