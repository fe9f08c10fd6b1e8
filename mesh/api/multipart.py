"""multipart/form-data, parsed as it arrives: files go straight into the arena, small fields into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from hailmesh.hail.errors import TooLarge, UsageError
from hailmesh.mesh.api.body import Sink

MAX_PARTS = 32
MAX_FIELD = 1 << 20
"""Bytes of one field that is kept in memory."""

Place = Callable[[str], "Sink | None"]
"""Where the bytes of the part of that name go: a sink, or None for memory."""


@dataclass(slots=True)
class FormPart:
    """`sink` has the bytes, or `data` if there is none. `ended` once its last byte is there."""

    name: str
    media_type: str
    sink: Sink | None
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False


class Form:
    """Feed it chunks, then call `finish`; `parts` fills as parts begin. UsageError where the body breaks RFC
    7578, names a part twice or not at all."""

    def __init__(self, content_type: str, place: Place) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise UsageError("Content-Type: multipart/form-data needs a boundary")
        self.parts: dict[str, FormPart] = {}
        self._place = place
        self._part: FormPart | None = None
        self._complete = False
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_part_data": self._data,
                    "on_part_end": self._end,
                    "on_header_field": self._field,
                    "on_header_value": self._value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._open,
                    "on_end": self._finished,
                },
            )
        except FormParserError as error:
            raise UsageError(f"Content-Type: {error}") from None

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise UsageError(f"the multipart body is malformed: {error}") from None

    def finish(self) -> None:
        """UsageError if the closing boundary never came."""
        if not self._complete:
            raise UsageError("the multipart body ends before its closing boundary")

    def text(self, name: str) -> str | None:
        """A field kept in memory, None if absent."""
        part = self.parts.get(name)
        if part is None or part.sink is not None:
            return None
        try:
            return part.data.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name}: expected UTF-8 text") from None

    def _begin(self) -> None:
        self._headers = {}

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _open(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if not name:
            raise UsageError("a part of the multipart body has no name in its Content-Disposition")
        if name in self.parts:
            raise UsageError(f"the multipart body has two parts named '{name}'")
        if len(self.parts) >= MAX_PARTS:
            raise UsageError(f"the multipart body has more than {MAX_PARTS} parts")
        media_type = self._headers.get(b"content-type", b"").decode("latin-1").strip()
        self._part = self.parts[name] = FormPart(name, media_type, self._place(name))

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if part is None:
            return
        if part.sink is not None:
            part.sink.write(data, start, end)
            return
        if len(part.data) + end - start > MAX_FIELD:
            raise TooLarge(f"{part.name}: a text field holds at most {MAX_FIELD} bytes")
        part.data += memoryview(data)[start:end]

    def _end(self) -> None:
        if self._part is not None:
            self._part.ended = True
            self._part = None

    def _finished(self) -> None:
        self._complete = True
