"""Server-sent events."""

from __future__ import annotations

import asyncio

from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.shapes import Headers

HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Starts the response at the first event, so that whatever fails before it has a status of its own."""

    def __init__(self, call: Call, headers: Headers | None = None) -> None:
        self._call = call
        self._headers = headers or []
        self._turn = asyncio.Lock()

    async def send(self, data: bytes, event: str = "") -> None:
        """One event; `data` must hold no newline (JSON never does)."""
        name = f"event: {event}\n".encode() if event else b""
        await self._write(name + b"data: " + data + b"\n\n")

    async def comment(self) -> None:
        """Keeps an idle connection alive, and starts the response."""
        await self._write(b":\n\n")

    async def _write(self, event: bytes) -> None:
        async with self._turn:
            if not self._call.started:
                await self._call.start(200, [*HEADERS, *self._headers])
            await self._call.write(event, more=True)

    async def end(self, done: bool = True) -> None:
        """With `done`, the end marker that OpenAI's clients wait for."""
        if done:
            await self.send(b"[DONE]")
        await self._call.write(b"")
