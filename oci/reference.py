"""How people name images: NAME, NAME:TAG, NAME@sha256:…, sha256:… or the first digits of a digest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hailmesh.hail.errors import UsageError
from hailmesh.oci.digest import is_digest

LATEST = "latest"
_NAME = re.compile(r"[a-z0-9]+(?:(?:[._-]|__)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._-]|__)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")


@dataclass(frozen=True, slots=True)
class Reference:
    """A name with a tag or a digest."""

    name: str
    tag: str = LATEST
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"

    @classmethod
    def parse(cls, text: str) -> Reference:
        """UsageError says what a reference looks like if `text` is none."""
        rest, _, digest = text.partition("@")
        name, colon, tag = rest.partition(":")
        fits = _NAME.fullmatch(name) and (not colon or _TAG.fullmatch(tag))
        if not fits or (digest and not is_digest(digest)) or text.endswith("@"):
            raise UsageError(
                f"{text!r} is no image reference; write NAME, NAME:TAG or NAME@sha256:<64 digits>"
            )
        return cls(name, tag or LATEST, digest)


def digest_prefix(text: str) -> str:
    """The hexadecimal digits if `text` may be a digest or the start of one (4 digits at least), or ''."""
    match = _PREFIX.fullmatch(text)
    return match[1] if match else ""
