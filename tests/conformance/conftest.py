"""The API over the node in memory, on a real socket, for clients that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.server import Served, serving

from hailmesh.hail.arena import Arena


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One server for a module's tests. At the end every lease must have returned."""
    with Arena.create(64 << 20) as arena:
        with serving(arena) as server:
            yield server
        assert arena.count == 0
