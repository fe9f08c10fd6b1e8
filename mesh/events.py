"""What happened, for those who watch: events to subscribers, and the last log lines of every unit."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

LOG_LINES = 1000
BACKLOG = 256
LEVELS = ("debug", "info", "warning", "error")


class Events:
    """Broadcast within one event loop. A subscriber that falls behind loses the oldest, never blocks."""

    def __init__(self) -> None:
        self._subscribers: set[asyncio.Queue[dict[str, Any]]] = set()

    def publish(self, kind: str, **details: Any) -> None:
        event = {"event": kind, "time": time.time(), **details}
        for queue in self._subscribers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    async def subscribe(self) -> AsyncIterator[dict[str, Any]]:
        """Every event from now on."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(BACKLOG)
        self._subscribers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._subscribers.discard(queue)


class Logs:
    """The last lines that each unit logged."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[dict[str, Any]]] = {}

    def add(self, unit: str, version: str, header: dict[str, Any], text: str) -> None:
        lines = self._lines.setdefault(unit, deque(maxlen=LOG_LINES))
        level = LEVELS[min(max(int(header.get("level", 1)), 0), len(LEVELS) - 1)]
        lines.append(
            {
                "time": time.time(),
                "version": version,
                "request": header.get("id", ""),
                "level": level,
                "line": text,
            }
        )

    def of(self, unit: str) -> list[dict[str, Any]]:
        return list(self._lines.get(unit, ()))
