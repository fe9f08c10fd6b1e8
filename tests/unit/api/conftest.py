"""The API over the node in memory, through httpx without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from conformance.memory_node import MemoryNode

from hailmesh.hail.arena import Arena
from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings

TOKEN = "admin-token"
MAX_BODY = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Every test must leave it as it was: whatever happens to a request, its leases return."""
    with Arena.create(64 << 20) as arena:
        yield arena
        assert arena.count == 0


@pytest.fixture
def node(arena: Arena) -> MemoryNode:
    return MemoryNode(arena)


@pytest.fixture
def settings() -> ApiSettings:
    return ApiSettings("127.0.0.1", 8080, MAX_BODY, TOKEN)


@pytest.fixture
def app(node: MemoryNode, settings: ApiSettings) -> Any:
    return create_app(node, settings)


@pytest.fixture
def client_of() -> Callable[[Any], httpx.AsyncClient]:
    return lambda app: httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=True), base_url="http://127.0.0.1:8080"
    )


@pytest.fixture
def client(app: Any, client_of: Callable[[Any], httpx.AsyncClient]) -> httpx.AsyncClient:
    return client_of(app)


@pytest.fixture
def admin() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}
