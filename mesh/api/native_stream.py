"""`/v1/invoke?stream=true`: results of several units in one stream of events, as they come.

data: {"modality":"text","chunk":{…}}
data: {"modality":"text","result":{…, "unit", "version", "timings"}}
event: error
data: {"modality":"speech","error":{…},"status":429}
data: [DONE]
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import orjson

from hailmesh.hail.errors import Cancelled, MeshError, UnitFault
from hailmesh.mesh.api.call import Call, dumps
from hailmesh.mesh.api.native_result import failed, result
from hailmesh.mesh.api.run import stream
from hailmesh.mesh.api.sse import EventStream
from hailmesh.router.request import Request


async def stream_all(call: Call, requests: dict[str, Request]) -> None:
    """Until all have ended. A request that fails alone, before anything was sent, fails with its status."""
    events = EventStream(call)
    if len(requests) == 1:
        ((name, request),) = requests.items()
        try:
            await _pump(call, name, request, events)
        except Cancelled:
            raise
        except MeshError as error:
            if not call.started:
                raise
            await _fail(call, name, error, events)
        await events.end()
        return
    tasks = [
        asyncio.ensure_future(_pump_or_fail(call, name, request, events))
        for name, request in requests.items()
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await events.end()


async def _pump(call: Call, name: str, request: Request, events: EventStream) -> None:
    async with aclosing(stream(call, request)) as source:
        async for event in source:
            if isinstance(event, bytes):
                await events.send(dumps({"modality": name, "chunk": parse_chunk(request.unit, event)}))
                continue
            try:
                data = dumps({"modality": name, "result": result(event)})
            finally:
                event.close()
            await events.send(data)


async def _pump_or_fail(call: Call, name: str, request: Request, events: EventStream) -> None:
    try:
        await _pump(call, name, request, events)
    except Cancelled:
        raise
    except MeshError as error:
        await _fail(call, name, error, events)


async def _fail(call: Call, name: str, error: MeshError, events: EventStream) -> None:
    await events.send(dumps({"modality": name, **failed(call, error)}), "error")


def parse_chunk(unit: str, chunk: bytes) -> dict[str, Any]:
    """What a unit emitted; UnitFault if it isn't a JSON object."""
    try:
        value = orjson.loads(chunk)
    except orjson.JSONDecodeError as error:
        raise UnitFault(f"unit {unit} emitted a chunk that is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UnitFault(f"unit {unit} emitted a JSON {type(value).__name__}, expected an object")
    return value
