"""Running requests for a call: counted, and cancelled the moment the client goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, asynccontextmanager

from hailmesh.hail.errors import Cancelled, MeshError
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.ports import Answer
from hailmesh.mesh.api.shapes import Headers
from hailmesh.router.request import Request

SHOWN_STAGES = ("queue", "sandbox", "bridge", "kernel", "gate", "total")


@asynccontextmanager
async def watched(call: Call, requests: Sequence[Request]) -> AsyncIterator[None]:
    """Cancels the requests' tokens as soon as the client disconnects. Their bodies must have been read."""
    watcher = asyncio.get_running_loop().create_task(_watch(call, requests))
    try:
        yield
    finally:
        watcher.cancel()


async def _watch(call: Call, requests: Sequence[Request]) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
    for request in requests:
        request.token.cancel()


async def handle(call: Call, request: Request) -> Answer:
    """The node's answer, counted."""
    return await counted(call, request, call.node.handle(request))


async def counted(call: Call, request: Request, work: Awaitable[Answer]) -> Answer:
    """What `work`, which runs the request, gives."""
    metrics = call.service.metrics
    metrics.began(request)
    try:
        answer = await work
    except MeshError as error:
        metrics.failed(request, error, _since(request))
        raise
    except BaseException:
        request.token.cancel()
        metrics.failed(request, Cancelled("the call was abandoned"), _since(request))
        raise
    metrics.answered(request, answer, time.time())
    return answer


async def stream(call: Call, request: Request) -> AsyncGenerator[bytes | Answer, None]:
    """The node's chunks and its answer, counted. Close it (`aclosing`) to cancel the request."""
    metrics = call.service.metrics
    metrics.began(request)
    first = True
    done = False
    try:
        async with aclosing(call.node.stream(request)) as events:
            async for event in events:
                if not isinstance(event, bytes):
                    done = True
                    metrics.answered(request, event, time.time())
                elif first:
                    first = False
                    metrics.first_result(request, _since(request))
                yield event
    except MeshError as error:
        if not done:
            done = True
            metrics.failed(request, error, _since(request))
        raise
    finally:
        if not done:
            request.token.cancel()
            metrics.failed(request, Cancelled("the client went away"), _since(request))


def answer_headers(answer: Answer) -> Headers:
    """X-Unit-Version and Server-Timing of an answer."""
    timings = answer.timings
    stages = ", ".join(f"{stage};dur={timings[stage]:.3f}" for stage in SHOWN_STAGES if stage in timings)
    return [
        (b"x-unit-version", f"{answer.unit}/{answer.version}".encode()),
        (b"server-timing", stages.encode()),
    ]


def _since(request: Request) -> float:
    return (time.monotonic_ns() - request.arrival_ns) / 1e9
