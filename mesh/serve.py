"""Running a node: the event loop, the listening socket, start and end."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import structlog
import uvloop

from hailmesh.hail.errors import UsageError
from hailmesh.mesh import wiring
from hailmesh.mesh.config import Config
from hailmesh.mesh.node import Node
from hailmesh.mesh.state import admin_token

if TYPE_CHECKING:
    from hailmesh.mesh.http import Server

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Started = Callable[[Node, str], Awaitable[int | None]]
"""Called once the node answers, with its URL. An exit code ends the node; None leaves it up."""


def run(config: Config, started: Started) -> int:
    """Serves until a signal, or until `started` returns an exit code."""
    structlog.configure(
        processors=[
            *structlog.get_config()["processors"][:-1],
            # The default draws every frame's variables, whatever a client made of them: seconds of the event
            # loop, and a log that quotes requests.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(config.log_level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    loop = uvloop.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(serve(config, started))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def serve(config: Config, started: Started) -> int:
    """As `run`, inside an event loop."""
    with ExitStack() as stack:
        listener = stack.enter_context(listen(config))
        port = listener.getsockname()[1]
        try:
            config.state.mkdir(parents=True, exist_ok=True)
            token = admin_token(config.state)
        except OSError as error:
            raise UsageError(
                f"the state folder {config.state} can't be used ({error.strerror}: {error.filename}): choose"
                " another --state, or make it a folder that this user may write"
            ) from None
        ending = stack.enter_context(_signals())
        node = wiring.build(config, stack)
        restoring = asyncio.ensure_future(node.restore())
        tasks: list[asyncio.Future[Any]] = [restoring]
        try:
            # Imported only now, and beside the event loop: the workers start and load meanwhile.
            http = await asyncio.to_thread(importlib.import_module, "hailmesh.mesh.http")
            server: Server = http.make_server(node, config, token, port)
            ending.add_done_callback(lambda _: server.end())
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            starting = asyncio.ensure_future(
                _start(node, restoring, server.up, f"http://{_shown(config.host)}:{port}", started)
            )
            tasks += [starting, serving]
            return await _until_done(serving, starting, server)
        finally:
            # What still loads undoes itself, before the ground is taken from under it.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await node.stop()


@contextmanager
def _signals() -> Iterator[asyncio.Future[None]]:
    """A future that is done once the node is told to end. From the first moment to the last, so that no
    signal tears it down in the middle of starting or of cleaning up."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    for number in SIGNALS:
        loop.add_signal_handler(number, lambda: None if told.done() else told.set_result(None))
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _start(
    node: Node, restoring: asyncio.Future[None], up: asyncio.Event, url: str, started: Started
) -> int | None:
    await restoring
    await up.wait()
    probing = asyncio.ensure_future(node.probe())
    try:
        return await started(node, url)
    finally:
        await probing


async def _until_done(
    serving: asyncio.Future[None], starting: asyncio.Future[int | None], server: Server
) -> int:
    """Until a signal ends the server, or the start fails or gives an exit code."""
    tasks: set[asyncio.Future[Any]] = {serving, starting}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and (starting.exception() is not None or starting.result() is not None):
        server.should_exit = True
    await serving
    if not starting.done():
        starting.cancel()
        return 0
    return starting.result() or 0


def listen(config: Config) -> socket.socket:
    """The listening socket, made first, so that a port in use is said before anything is loaded."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"can't listen on {config.host}:{config.port} ({error.strerror}): choose another --port"
        ) from None
    listener.setblocking(False)
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
