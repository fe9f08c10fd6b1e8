"""One HTTP exchange: what came in, and the ways to answer."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

import orjson

from hailmesh.hail.errors import MeshError, UnitFault, UsageError
from hailmesh.mesh.api.ports import ApiSettings, Node
from hailmesh.mesh.api.shapes import Family, Headers, failure
from hailmesh.mesh.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"
_PREFIX = secrets.token_hex(4)
_COUNT = itertools.count(1)
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(frozen=True, slots=True)
class Service:
    """What every endpoint works with."""

    node: Node
    settings: ApiSettings
    metrics: Metrics


def dumps(value: Any) -> bytes:
    """JSON; numpy scalars and non-string keys are a unit's right. UnitFault if there is no JSON for it: what
    a unit replied may be nested deeper than the writer goes (254 levels), which the reader took."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        raise UnitFault(f"the unit's reply can't be written as JSON: {error}") from None


class Call:
    """`id` goes back in X-Request-Id: the client's own if it sent one. `unique` is never used twice."""

    def __init__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, service: Service, family: Family
    ) -> None:
        self.arrival_ns = time.monotonic_ns()
        self.scope = scope
        self.receive = receive
        self.service = service
        self.family = family
        self.started = False
        self.tenant = ""
        self.extra: Headers = []
        self._send = send
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.unique = f"{_PREFIX}-{next(_COUNT):x}"
        asked = self.header(b"x-request-id")
        if asked is not None and _CLIENT_ID.fullmatch(asked):
            self.id = asked
            self.unique = f"{asked}-{self.unique}"
        else:
            self.id = self.unique

    def header(self, name: bytes) -> str | None:
        """The first header of that name (lower case)."""
        for key, value in self._headers:
            if key == name:
                return value.decode("latin-1")
        return None

    @property
    def node(self) -> Node:
        return self.service.node

    @property
    def path_params(self) -> dict[str, str]:
        params: dict[str, str] = self.scope["path_params"]
        return params

    @cached_property
    def _query(self) -> dict[str, list[str]]:
        raw: bytes = self.scope["query_string"]
        try:
            return parse_qs(raw.decode("ascii"), keep_blank_values=True, max_num_fields=64)
        except ValueError as error:
            raise UsageError(f"the query string is malformed: {error}") from None

    def query(self, name: str) -> str | None:
        values = self._query.get(name)
        return values[-1] if values else None

    def flag(self, name: str) -> bool:
        """A boolean of the query string; UsageError unless it says true or false."""
        text = self.query(name)
        if text is None or text.lower() in ("false", "0", "no"):
            return False
        if text.lower() in ("true", "1", "yes", ""):
            return True
        raise UsageError(f"{name}: expected true or false, found '{text}'")

    @property
    def elapsed_ms(self) -> float:
        return (time.monotonic_ns() - self.arrival_ns) / 1e6

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Status and headers; `write` must follow until it says that no more comes."""
        self.started = True
        fixed = [(b"x-request-id", self.id.encode()), (b"x-content-type-options", b"nosniff")]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*headers, *fixed, *self.extra]}
        )

    async def write(self, body: bytes, more: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def reply(
        self,
        body: bytes,
        status: int = 200,
        content_type: bytes = JSON,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """The whole answer."""
        length = (b"content-length", str(len(body)).encode())
        await self.start(status, [(b"content-type", content_type), length, *headers])
        await self.write(b"" if self.scope["method"] == "HEAD" else body)

    async def json(self, value: Any, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        await self.reply(dumps(value), status, JSON, headers)

    async def fail(self, error: MeshError, param: str | None = None) -> None:
        """The error in the family's shape. The connection closes if a body may still be coming."""
        status, body, headers = failure(self.family, error, param)
        if status in (401, 403, 408, 413):
            headers.append((b"connection", b"close"))
        await self.json(body, status, headers)
