"""Frames of sandboxes/protocol over a blocking socket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import orjson

from hailmesh.hail.errors import UnitFault
from hailmesh.sandboxes.protocol import MAX_HEADER, MAX_PAYLOAD, PREFIX, pack


class Frames:
    """One end. Any thread may send; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._stream = end.makefile("rb")

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """OSError once the other end has gone."""
        frame = pack(header, payload)
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """The next frame; None once the other end has closed. UnitFault for one that breaks the format."""
        prefix = self._stream.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return None
        head, payload = PREFIX.unpack(prefix)
        if head > MAX_HEADER or payload > MAX_PAYLOAD:
            raise UnitFault(
                f"a frame announces {head} and {payload} bytes, over {MAX_HEADER} or {MAX_PAYLOAD}"
            )
        body = self._stream.read(head + payload)
        if len(body) < head + payload:
            return None
        return orjson.loads(body[:head]), body[head:]

    def close(self) -> None:
        """Idempotent; ends a `receive` in another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._socket.close()
