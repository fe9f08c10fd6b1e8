"""A streamed answer in OpenAI's frames: pieces, `data: [DONE]`, and `event: error` if it breaks."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

from hailmesh.hail.errors import Cancelled, MeshError
from hailmesh.mesh.api.call import Call, dumps
from hailmesh.mesh.api.native_stream import parse_chunk
from hailmesh.mesh.api.run import stream
from hailmesh.mesh.api.shapes import failure
from hailmesh.mesh.api.sse import EventStream
from hailmesh.router.request import Request


class Chunks(Protocol):
    """How one endpoint words the pieces of its stream."""

    def opening(self) -> dict[str, Any] | None: ...

    def piece(self, emitted: dict[str, Any]) -> dict[str, Any]: ...

    def closing(self, reply: dict[str, Any]) -> dict[str, Any]: ...

    def usage(self, reply: dict[str, Any]) -> dict[str, Any]: ...


async def stream_answer(call: Call, request: Request, chunks: Chunks, with_usage: bool) -> None:
    """Until the unit has answered. What fails before its first piece fails with a status; later failures are
    an event, after which the stream ends."""
    events = EventStream(call)
    # Asked for usage, clients expect the field in every chunk, null in all but the last.
    filler = {"usage": None} if with_usage else {}
    try:
        async with aclosing(stream(call, request)) as source:
            async for event in source:
                if not call.started and (opening := chunks.opening()) is not None:
                    await events.send(dumps({**opening, **filler}))
                if isinstance(event, bytes):
                    emitted = parse_chunk(request.unit, event)
                    await events.send(dumps({**chunks.piece(emitted), **filler}))
                    continue
                try:
                    closing = chunks.closing(event.body)
                    usage = chunks.usage(event.body)
                finally:
                    event.close()
                await events.send(dumps({**closing, **filler}))
                if with_usage:
                    await events.send(dumps(usage))
    except Cancelled:
        raise
    except MeshError as error:
        if not call.started:
            raise
        _, body, _ = failure(call.family, error)
        await events.send(dumps(body), "error")
        await events.end(done=False)
        return
    await events.end()
