"""An error as each family of clients expects it."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from hailmesh.hail.errors import MeshError, OutOfArena, Overloaded
from hailmesh.mesh.errors import http_status

Headers = list[tuple[bytes, bytes]]


class Family(Enum):
    """Who asks: the native API, OpenAI's clients, or the Open Inference Protocol's."""

    NATIVE = "native"
    OPENAI = "openai"
    V2 = "v2"


OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
OPENAI_CODES = {"unauthorized": "invalid_api_key", "too_large": "request_too_large"}


def family_of(path: str) -> Family:
    """The family whose clients ask for a path that no endpoint has."""
    if path == "/v2" or path.startswith("/v2/"):
        return Family.V2
    if path.startswith(("/v1/chat", "/v1/completions", "/v1/audio", "/v1/models", "/v1/embeddings")):
        return Family.OPENAI
    return Family.NATIVE


def failure(
    family: Family, error: MeshError, param: str | None = None
) -> tuple[int, dict[str, Any], Headers]:
    """Status, JSON body and headers of an error. `param` names the field at fault, for OpenAI's clients."""
    status = http_status(error)
    headers: Headers = []
    details: dict[str, Any] = {}
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, Overloaded):
        headers += retry_headers(error.retry_after)
        details["retry_after"] = round(error.retry_after, 3)
        if error.predicted is not None:
            details["predicted_ms"] = round(error.predicted * 1e3, 3)
    elif isinstance(error, OutOfArena):
        headers += retry_headers(1.0)
    return status, shape(family, status, error.code, str(error), param=param, **details), headers


def shape(
    family: Family, status: int, code: str, message: str, *, param: str | None = None, **details: Any
) -> dict[str, Any]:
    """The JSON body of an error; `details` go beside the message."""
    if family is Family.V2:
        return {"error": message, **details}
    if family is Family.OPENAI:
        kind = OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        code = OPENAI_CODES.get(code, code)
        return {"error": {"message": message, "type": kind, "param": param, "code": code, **details}}
    return {"error": {"code": code, "message": message, **details}}


def retry_headers(seconds: float) -> Headers:
    """Whole seconds for the standard's readers, milliseconds for those that know better."""
    return [
        (b"retry-after", str(max(1, math.ceil(seconds))).encode()),
        (b"retry-after-ms", str(max(1, math.ceil(seconds * 1e3))).encode()),
    ]
