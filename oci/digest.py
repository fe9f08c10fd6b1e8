"""SHA-256 digests in OCI's notation, `sha256:<64 hexadecimal digits>`."""

from __future__ import annotations

import hashlib
import os
import re

from hailmesh.hail.errors import ImageError

_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK = 1 << 20


def is_digest(text: str) -> bool:
    """Whether `text` is a whole digest of the one algorithm we take."""
    return _PATTERN.fullmatch(text) is not None


def hexadecimal(digest: str) -> str:
    """The part behind `sha256:`; ImageError if `digest` is malformed. So it is safe as a file name."""
    if not is_digest(digest):
        raise ImageError(f"expected a digest like sha256:<64 hexadecimal digits>, found {digest!r}")
    return digest[len("sha256:") :]


def of_bytes(data: bytes) -> str:
    """The digest of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def of_descriptor(fd: int) -> tuple[str, int]:
    """(digest, size) of the whole file behind an open descriptor, whose position is left alone."""
    state = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    at = 0
    while count := os.preadv(fd, [buffer], at):
        state.update(view[:count])
        at += count
    return "sha256:" + state.hexdigest(), at
