"""Error numbers of the unit ABI: those of WASI preview 1, and how our errors map onto them and back."""

from __future__ import annotations

from enum import IntEnum

from hailmesh.hail.errors import (
    Cancelled,
    DeadlineExceeded,
    Denied,
    DeviceError,
    ImageError,
    MeshError,
    NotFound,
    OutOfArena,
    Overloaded,
    TooLarge,
    UnitFault,
    Unsupported,
    UsageError,
)


class Errno(IntEnum):
    """The numbers that calls of mesh_v1 answer with (negated) and those of preview 1 that units use."""

    SUCCESS = 0
    E2BIG = 1
    EACCES = 2
    EAGAIN = 6
    EBADF = 8
    EBUSY = 10
    ECANCELED = 11
    EFAULT = 21
    EILSEQ = 25
    EINVAL = 28
    EIO = 29
    EMFILE = 33
    ENOENT = 44
    ENOMEM = 48
    ENOMSG = 49
    ENOSYS = 52
    ENOTSUP = 58
    EOVERFLOW = 61
    EROFS = 69
    ETIMEDOUT = 73


class CallError(Exception):
    """A call of the guest's that can't be done as asked; only that call fails, with `errno`."""

    def __init__(self, errno: Errno, message: str) -> None:
        super().__init__(message)
        self.errno = errno


_OF_ERROR: tuple[tuple[type[MeshError], Errno], ...] = (
    (TooLarge, Errno.E2BIG),
    (Unsupported, Errno.ENOTSUP),
    (UsageError, Errno.EINVAL),
    (NotFound, Errno.ENOENT),
    (Denied, Errno.EACCES),
    (Overloaded, Errno.EAGAIN),
    (DeadlineExceeded, Errno.ETIMEDOUT),
    (Cancelled, Errno.ECANCELED),
    (OutOfArena, Errno.ENOMEM),
    (DeviceError, Errno.EIO),
    (ImageError, Errno.EIO),
)

_REFUSALS: dict[int, type[MeshError]] = {
    Errno.EINVAL: UsageError,
    Errno.E2BIG: TooLarge,
    Errno.ENOTSUP: Unsupported,
    Errno.ENOENT: NotFound,
}
"""What mesh_handle may refuse a request with; see mesh_v1.h."""


def of_error(error: BaseException) -> Errno:
    """The number a guest gets for an error of a host call; EIO for one that nobody foresaw."""
    if isinstance(error, CallError):
        return error.errno
    return next((errno for kind, errno in _OF_ERROR if isinstance(error, kind)), Errno.EIO)


def refusal(result: int, message: str, cause: BaseException | None) -> MeshError:
    """Why a request failed whose mesh_handle returned `result`, not 0. `message`: what the unit said about
    it; `cause`: the error of its last host call that failed. When the unit only passes on what the host
    told it, the host's own error is the better answer."""
    number = -result
    if number not in _REFUSALS and isinstance(cause, MeshError) and of_error(cause) == number:
        return cause
    name = Errno(number).name if number in Errno._value2member_map_ else f"error {result}"
    text = message or (str(cause) if cause is not None and of_error(cause) == number else "")
    if number in _REFUSALS:
        return _REFUSALS[number](text or f"the unit refused the request ({name}) without saying why")
    return UnitFault(f"the unit failed with {name}" + (f": {text}" if text else ""))
