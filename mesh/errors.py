"""Error codes of `hail.errors` as HTTP statuses and exit statuses: the one place that knows both."""

from __future__ import annotations

from hailmesh.hail.errors import Denied, MeshError, UsageError


class Unauthorized(Denied):
    """No token or key, or a wrong one; a right one would help."""

    code = "unauthorized"


class Stalled(UsageError):  # noqa: N818 (named as the tree of hail.errors is)
    """The client stopped sending in the middle of its request."""

    code = "stalled"


HTTP_STATUS: dict[str, int] = {
    "usage": 400,
    "too_large": 413,
    "unsupported": 415,
    "not_found": 404,
    "model_not_found": 404,
    "unauthorized": 401,
    "denied": 403,
    "overloaded": 429,
    "deadline_exceeded": 504,
    "stalled": 408,
    "cancelled": 499,
    "unit_fault": 502,
    "image": 422,
    "device": 503,
    "out_of_arena": 503,
    "error": 500,
}
"""499 is what nginx logs when the client has gone; nobody is left to read it."""


def http_status(error: MeshError) -> int:
    """The HTTP status of an error; 500 for one of no known family."""
    return HTTP_STATUS.get(error.code, 500)


def exit_status(error: MeshError) -> int:
    """The exit status of a command that ended in an error: 2 if its usage was wrong, else 1."""
    return 2 if isinstance(error, UsageError) else 1
