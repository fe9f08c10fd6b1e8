"""An endpoint: a path, who may use it, and what is done with a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import structlog

from hailmesh.hail.errors import Cancelled, MeshError
from hailmesh.mesh.api.access import check
from hailmesh.mesh.api.call import Call, Receive, Send, Service
from hailmesh.mesh.api.fields import FieldError
from hailmesh.mesh.api.shapes import Family

log = structlog.get_logger()

Handler = Callable[[Call], Awaitable[None]]


class Access(Enum):
    """OPEN to all, INFER with an API key if the node has any, MANAGE with the admin token."""

    OPEN = "open"
    INFER = "infer"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`query` documents the query string: name → what it does. `body` and `answer` are JSON schemas of the
    main content types, for the OpenAPI document."""

    method: str
    path: str
    handler: Handler
    summary: str
    family: Family = Family.NATIVE
    access: Access = Access.INFER
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, dict[str, Any]] = field(default_factory=dict)
    answer: str = "application/json"
    description: str = ""


class Door:
    """The ASGI application of one endpoint. No exception leaves it: an answer that breaks off after its start
    is left incomplete, which makes the server close the connection."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint = endpoint
        self._service = service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        endpoint = self._endpoint
        call = Call(scope, receive, send, self._service, endpoint.family)
        try:
            if endpoint.access is not Access.OPEN:
                call.tenant = check(
                    call.header(b"authorization"), endpoint.access.value, self._service.settings
                )
            await endpoint.handler(call)
        except MeshError as error:
            if not isinstance(error, Cancelled):
                log.debug("a request failed", path=scope["path"], request=call.id, reason=str(error))
            if not call.started:
                await call.fail(error, error.param if isinstance(error, FieldError) else None)
        except Exception:
            log.exception("a request failed in a way nobody expected", path=scope["path"], request=call.id)
            if not call.started:
                await call.fail(MeshError("the node failed in an unexpected way; its log says more"))
