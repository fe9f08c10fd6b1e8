"""One HTTP exchange with an ASGI application, in the hands of a test: it decides when bytes come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit


class Exchange:
    """Starts the application at once. `status`, `headers` and `body` fill as it answers."""

    def __init__(self, app: Any, method: str, url: str, headers: dict[str, str] | None = None) -> None:
        split = urlsplit(url)
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._changed = asyncio.Event()
        given = {"host": "127.0.0.1", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": split.path,
            "raw_path": split.path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": split.query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        self._task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))
        self._task.add_done_callback(lambda _: self._changed.set())

    async def send(self, data: bytes, more: bool = False) -> None:
        """A piece of the request's body."""
        await self._incoming.put({"type": "http.request", "body": data, "more_body": more})

    def leave(self) -> None:
        """The client closes its connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    def cancel(self) -> None:
        """The server gives up on the exchange, as when it is told to end."""
        self._task.cancel()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits until the condition holds; AssertionError if the application ends before."""
        while not condition():
            assert not self._task.done(), f"ended with {self.status} {self.body!r}"
            self._changed.clear()
            await asyncio.wait({asyncio.ensure_future(self._changed.wait())}, timeout=0.01)

    async def finished(self) -> None:
        """Waits for the application; re-raises what it raised."""
        await self._task

    def json(self) -> Any:
        return json.loads(self.body)

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
        self._changed.set()
