"""The HTTP server around the API: uvicorn, told when it listens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings, Node
from hailmesh.mesh.config import Config

LINGER = 10
"""Seconds that open connections get to finish once the node is told to end."""


class Server(uvicorn.Server):
    """`up` is set once it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: the node has its own handlers from before there is a server, to its end."""
        yield

    def end(self) -> None:
        """Stops accepting connections; those that are open get LINGER seconds to finish."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


def make_server(node: Node, config: Config, admin_token: str, port: int) -> Server:
    settings = ApiSettings(config.host, port, config.max_body_bytes, admin_token, config.api_keys)
    return Server(
        uvicorn.Config(
            create_app(node, settings),
            loop="none",
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=LINGER,
        )
    )
