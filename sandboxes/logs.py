"""What a unit writes to its log and its standard streams during one request, as lines, up to a limit."""

from __future__ import annotations

INFO, WARNING, LAST_LEVEL = 1, 2, 3

MAX_LINE = 4096
"""Bytes; a longer one is cut into several."""

Line = tuple[int, str]
"""Level and text."""


class Logs:
    """After `limit` bytes one last line says so, and the rest is dropped: a unit that floods its log loses
    its lines, not its request. Each method returns the lines that are complete now."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._partial: dict[int, bytes] = {}

    @property
    def full(self) -> bool:
        return self._left < 0

    def entry(self, level: int, text: bytes) -> list[Line]:
        """Text that is complete."""
        return self._counted(level, text.split(b"\n"))

    def output(self, level: int, data: bytes) -> list[Line]:
        """A piece of standard output (INFO) or standard error (WARNING)."""
        *lines, rest = (self._partial.pop(level, b"") + data).split(b"\n")
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        if rest:
            self._partial[level] = rest
        return self._counted(level, lines)

    def rest(self) -> list[Line]:
        """Lines that were begun end here."""
        begun, self._partial = self._partial, {}
        return [line for level, text in begun.items() for line in self._counted(level, [text])]

    def _counted(self, level: int, texts: list[bytes]) -> list[Line]:
        lines = []
        for text in texts:
            if self.full:
                break
            self._left -= len(text)
            if self.full:
                lines.append((WARNING, "the log of this request is over its limit; the rest is dropped"))
            else:
                lines.append((level, text.decode("utf-8", "replace")))
        return lines
