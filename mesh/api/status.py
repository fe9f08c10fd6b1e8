"""The node itself: what it is, how it is, what happens on it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from prometheus_client import CONTENT_TYPE_LATEST

from hailmesh.mesh.api.call import Call, dumps
from hailmesh.mesh.api.endpoint import Access, Endpoint
from hailmesh.mesh.api.sse import EventStream


async def describe(call: Call) -> None:
    await call.json(call.node.describe())


async def events(call: Call) -> None:
    """Until the client leaves."""
    stream = EventStream(call)
    await stream.comment()
    pump = asyncio.ensure_future(_pump(call, stream))
    gone = asyncio.ensure_future(_gone(call))
    try:
        await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (pump, gone):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await pump
    await stream.end(done=False)


async def _pump(call: Call, stream: EventStream) -> None:
    async for event in call.node.events():
        await stream.send(dumps(event))


async def _gone(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


async def healthz(call: Call) -> None:
    await call.json({"status": "ok"})


async def readyz(call: Call) -> None:
    ready = call.node.ready
    await call.json({"status": "ready" if ready else "starting"}, status=200 if ready else 503)


async def metrics(call: Call) -> None:
    await call.reply(call.service.metrics.exposition(), content_type=CONTENT_TYPE_LATEST.encode())


ENDPOINTS = [
    Endpoint("GET", "/v1/node", describe, "The node: version, uptime, device, lanes, memory"),
    Endpoint(
        "GET",
        "/v1/events",
        events,
        "State changes of units and workers, as they happen",
        answer="text/event-stream",
    ),
    Endpoint("GET", "/healthz", healthz, "200 while the node's process answers", access=Access.OPEN),
    Endpoint("GET", "/readyz", readyz, "200 once every unit that should serve does", access=Access.OPEN),
    Endpoint("GET", "/metrics", metrics, "All metrics in Prometheus' text format", answer="text/plain"),
]
