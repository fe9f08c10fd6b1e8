"""What a unit writes to its log and its standard streams during one request, as lines, up to a limit."""

from __future__ import annotations

from collections.abc import Callable

INFO, WARNING, LAST_LEVEL = 1, 2, 3

MAX_LINE = 4096
"""Bytes; a longer one is cut into several."""


class Logs:
    """After `limit` bytes one last line says so, and the rest is dropped: a unit that floods its log loses
    its lines, not its request."""

    def __init__(self, write: Callable[[int, str], None], limit: int) -> None:
        self._write = write
        self._left = limit
        self._partial = {INFO: b"", WARNING: b""}

    @property
    def full(self) -> bool:
        return self._left < 0

    def line(self, level: int, text: bytes) -> None:
        if self.full:
            return
        self._left -= len(text)
        if self.full:
            self._write(WARNING, "the log of this request is over its limit; the rest is dropped")
            return
        self._write(level, text.decode("utf-8", "replace"))

    def stream(self, level: int, data: bytes) -> None:
        """A piece of standard output (INFO) or standard error (WARNING)."""
        *lines, rest = (self._partial[level] + data).split(b"\n")
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        self._partial[level] = rest
        for text in lines:
            self.line(level, text)

    def flush(self) -> None:
        """Lines that were begun end here."""
        for level, rest in self._partial.items():
            if rest:
                self.line(level, rest)
            self._partial[level] = b""
