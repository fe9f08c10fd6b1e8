"""OCI descriptors: what a blob is, how large, and by which digest it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hailmesh.hail.errors import ImageError
from hailmesh.oci.digest import hexadecimal


@dataclass(frozen=True, slots=True)
class Platform:
    """What a manifest runs on; a model runs on none in particular."""

    architecture: str = "unknown"
    os: str = "unknown"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference to a blob. Only fields that survive `skopeo copy` stand here; others would vanish in it."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None

    def annotated(self, **annotations: str) -> Descriptor:
        """With these annotations added; use a mapping (`**{…}`) for keys with dots."""
        return replace(self, annotations={**self.annotations, **annotations})

    def document(self) -> dict[str, Any]:
        """For JSON, in the order that tools which parse and rewrite an index keep."""
        document: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.annotations:
            document["annotations"] = dict(sorted(self.annotations.items()))
        if self.platform:
            document["platform"] = {"architecture": self.platform.architecture, "os": self.platform.os}
        return document

    @classmethod
    def of(cls, document: Any) -> Descriptor:
        """From JSON; ImageError says what is malformed. Unknown fields are ignored, as OCI asks."""
        if not isinstance(document, dict):
            raise ImageError(f"expected a descriptor object, found {type(document).__name__}")
        media_type, digest, size = (document.get(key) for key in ("mediaType", "digest", "size"))
        if not isinstance(media_type, str) or not isinstance(digest, str):
            raise ImageError("a descriptor needs mediaType and digest as strings")
        hexadecimal(digest)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ImageError(f"the descriptor of {digest} needs a size in bytes, found {size!r}")
        annotations = document.get("annotations") or {}
        if not isinstance(annotations, dict) or not all(
            isinstance(text, str) for text in annotations.values()
        ):
            raise ImageError(f"the annotations of {digest} must be strings by name")
        platform = document.get("platform")
        if isinstance(platform, dict):
            platform = Platform(str(platform.get("architecture", "")), str(platform.get("os", "")))
        else:
            platform = None
        return cls(media_type, digest, size, annotations, platform)
