"""A node as a user starts it, on the built images."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.support.paths import STATE
from bench.support.process import Server, server

from hailmesh.oci.store import Store

_HAILMESH = Path(sys.executable).with_name("hailmesh")


def images_built(*units: str) -> bool:
    """Whether `make images` has made these."""
    if not (STATE / "store" / "index.json").exists():
        return False
    names = {listed.reference.partition(":")[0] for listed in Store(STATE / "store").ls()}
    return all(unit in names for unit in units)


def require_images(*units: str) -> None:
    """SystemExit with a line that says what to do if these aren't built."""
    if not images_built(*units):
        raise SystemExit(f"the images of {', '.join(units)} aren't built: run 'make images' first")


@contextmanager
def node(*units: str, threads: int = 0) -> Iterator[Server]:
    """A node process with these units, in wide mode, on a free port and in a state folder of its own; with
    that many threads a graph, or as many as there are cores."""
    require_images(*units)
    state = Path(tempfile.mkdtemp(prefix="hailmesh-bench-"))
    for name in ("store", "artifacts"):
        (state / name).symlink_to(STATE / name)
    command = [str(_HAILMESH), "up", "--port", "0", "--state", str(state), *(f"--plug={u}" for u in units)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("HAILMESH_")}
    own.update(HAILMESH_LANES="wide", HAILMESH_THREADS=str(threads), HAILMESH_LOG_LEVEL="warning")
    try:
        with server(command, own) as running:
            yield running
    finally:
        shutil.rmtree(state)
