"""uvicorn around the API and the node in memory, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from conformance.memory_node import MemoryNode

from hailmesh.hail.arena import Arena
from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings

TOKEN = "admin-token"


@dataclass
class Served:
    """`loop` runs the node: touch the node from a test only through it."""

    url: str
    node: MemoryNode
    loop: asyncio.AbstractEventLoop


@contextmanager
def serving(arena: Arena, *, max_body: int = 16 << 20) -> Iterator[Served]:
    """A server on a free port of the loopback, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    up = threading.Event()
    loop = asyncio.new_event_loop()
    node = MemoryNode(arena)
    app = create_app(node, ApiSettings("127.0.0.1", port, max_body, TOKEN))
    config = uvicorn.Config(
        app, http="httptools", ws="websockets-sansio", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        serve = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serve.done():
            await asyncio.sleep(0.005)
        up.set()
        await serve

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    up.wait()
    try:
        yield Served(f"http://127.0.0.1:{port}", node, loop)
    finally:
        server.should_exit = True
        thread.join()
        loop.close()
        listener.close()
