"""The HTTP application: every endpoint, put together."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from hailmesh import __version__
from hailmesh.mesh.api import native, status, units
from hailmesh.mesh.api.call import Call, Service, dumps
from hailmesh.mesh.api.docs import page
from hailmesh.mesh.api.endpoint import Access, Door, Endpoint
from hailmesh.mesh.api.guard import Guard
from hailmesh.mesh.api.openai import audio, chat, completions, models
from hailmesh.mesh.api.openapi import document
from hailmesh.mesh.api.ports import ApiSettings, Node
from hailmesh.mesh.api.session import SessionDoor
from hailmesh.mesh.api.shapes import family_of, shape
from hailmesh.mesh.api.v2 import infer, metadata, repository
from hailmesh.mesh.metrics import Metrics

ENDPOINTS: list[Endpoint] = [
    *native.ENDPOINTS,
    *infer.ENDPOINTS,
    *chat.ENDPOINTS,
    *completions.ENDPOINTS,
    *audio.ENDPOINTS,
    *models.ENDPOINTS,
    *units.ENDPOINTS,
    *status.ENDPOINTS,
    *metadata.ENDPOINTS,
    *repository.ENDPOINTS,
]
"""In the order in which paths are tried: the hot ones first."""


CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")


def create_app(node: Node, settings: ApiSettings) -> FastAPI:
    """The application for one node. Endpoints are plain ASGI: nothing stands between the socket and the arena
    but the guard and the router."""
    service = Service(node, settings, Metrics(node))
    app = FastAPI(
        title="hailmesh",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    endpoints = [*ENDPOINTS, *_documentation(ENDPOINTS)]
    app.router.routes.extend(
        Route(endpoint.path, Door(endpoint, service), methods=[endpoint.method]) for endpoint in endpoints
    )
    app.router.routes.append(WebSocketRoute("/v1/units/{name}/session", SessionDoor(service)))
    app.add_exception_handler(HTTPException, _no_endpoint)
    app.add_middleware(Guard, settings=settings)
    return app


def _documentation(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    described = document(endpoints, __version__)
    as_json, as_page = dumps(described), page(described)

    async def openapi(call: Call) -> None:
        await call.reply(as_json)

    async def docs(call: Call) -> None:
        await call.reply(as_page, content_type=b"text/html; charset=utf-8", headers=[CONTENT_POLICY])

    return [
        Endpoint("GET", "/openapi.json", openapi, "This document", access=Access.OPEN),
        Endpoint("GET", "/docs", docs, "This document as a page", access=Access.OPEN),
    ]


async def _no_endpoint(request: Request, error: Exception) -> Response:
    """No such path, or not with that method, in the shape of whoever would ask for it."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        code, message = "method_not_allowed", f"{path} doesn't answer {request.method}"
    elif error.status_code == 404:
        code, message = "not_found", f"there is no {path}; /docs lists what there is"
    else:
        code, message = "error", str(error.detail)
    body = shape(family_of(path), error.status_code, code, message)
    return Response(dumps(body), error.status_code, error.headers, "application/json")
