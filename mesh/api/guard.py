"""Keeps web pages of other origins away from a node on this machine: DNS rebinding, CSRF, WebSocket hijack.

A rebound name reaches 127.0.0.1 with its own name in Host; a foreign page's request carries its Origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from hailmesh.hail.errors import Denied
from hailmesh.mesh.api.call import Message, Receive, Send
from hailmesh.mesh.api.ports import ApiSettings
from hailmesh.mesh.api.shapes import failure, family_of

App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    """ASGI middleware. Host is checked where the node listens on loopback; elsewhere it needs API keys, which
    a rebound page doesn't have. Origin is checked always; clients that are no browsers send none."""

    def __init__(self, app: App, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._loopback = settings.host in LOOPBACK

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            reason = self.refusal(scope["headers"])
            if reason:
                await refuse(scope, send, Denied(reason))
                return
        await self._app(scope, receive, send)

    def refusal(self, headers: list[tuple[bytes, bytes]]) -> str:
        """Why these headers are refused; empty if they aren't."""
        host = origin = None
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
        if self._loopback and (host is None or _hostname(host) not in LOOPBACK):
            return f"Host '{host}' is not a name of this machine's loopback: use 127.0.0.1 or localhost"
        if origin is not None and _authority(origin) != (host or "").lower():
            return f"a page of another origin ({origin}) may not call this node"
        return ""


def _authority(origin: str) -> str:
    """Name and port of an Origin header; of the opaque `null` and of nonsense, none."""
    try:
        return urlsplit(origin).netloc.lower() or "-"
    except ValueError:
        return "-"


def _hostname(host: str) -> str:
    """The name or address in a Host header, without port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def refuse(scope: MutableMapping[str, Any], send: Send, error: Denied) -> None:
    """Answers before any endpoint has seen the request."""
    if scope["type"] == "websocket":
        # Closed before it was accepted: the handshake is answered with 403.
        await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:120]})
        return
    status, body, headers = failure(family_of(scope["path"]), error)
    raw = orjson.dumps(body)
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(raw)).encode()),
            (b"connection", b"close"),
            *headers,
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": raw})
