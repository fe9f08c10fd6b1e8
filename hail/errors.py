"""The error tree. Every error a part of hailmesh raises on purpose is one of these.

    MeshError
    ├── UsageError            the caller asked for something malformed
    │   ├── TooLarge          ... or larger than a stated limit
    │   └── Unsupported       ... or of a kind (media type, encoding) this unit doesn't take
    ├── NotFound              no such unit, image, tensor, graph
    ├── Denied                policy or a missing grant forbids it
    ├── Overloaded            can't be met in time; carries retry_after
    ├── DeadlineExceeded      a deadline passed while it waited or ran
    ├── Cancelled             the client went away, or the request was cancelled
    ├── UnitFault             the unit trapped, hit a limit, or gave a bad reply
    ├── ImageError            a digest, signature or format of an image is wrong
    ├── DeviceError           a device or executor failed
    └── OutOfArena            the arena, or a quota in it, is exhausted

`code` is stable and goes over the wire; `mesh/` maps it to HTTP and exit statuses in one place.
"""

# ruff: noqa: N818  (the names are the field's own; all of them being errors, a suffix would say nothing)

from __future__ import annotations


class MeshError(Exception):
    """Base of all; `str(error)` is one line that says what to do."""

    code = "error"


class UsageError(MeshError):
    code = "usage"


class TooLarge(UsageError):
    code = "too_large"


class Unsupported(UsageError):
    code = "unsupported"


class NotFound(MeshError):
    code = "not_found"


class Denied(MeshError):
    code = "denied"


class Overloaded(MeshError):
    """`retry_after` is in seconds; `predicted` the predicted total time in seconds, if known."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float = 1.0, predicted: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.predicted = predicted


class DeadlineExceeded(MeshError):
    code = "deadline_exceeded"


class Cancelled(MeshError):
    code = "cancelled"


class UnitFault(MeshError):
    code = "unit_fault"


class ImageError(MeshError):
    code = "image"


class DeviceError(MeshError):
    code = "device"


class OutOfArena(MeshError):
    code = "out_of_arena"


def _tree(root: type[MeshError]) -> dict[str, type[MeshError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        # A subclass that keeps its parent's code is the parent on the wire.
        found.update({code: kind for code, kind in _tree(child).items() if code not in found})
    return found


def from_wire(code: str, message: str, *, retry_after: float = 1.0) -> MeshError:
    """The error that crossed a process boundary as (code, message)."""
    kind = _tree(MeshError).get(code, MeshError)
    if kind is Overloaded:
        return Overloaded(message, retry_after=retry_after)
    return kind(message)
