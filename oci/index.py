"""OCI indexes and manifests as JSON, so that they pass through other tools bit by bit.

`skopeo copy --all` parses an index with Go structures and writes it again. What comes out equals what went in
when the document is compact, fields stand in the order of those structures, maps are sorted, and strings are
escaped as Go does it. Child manifests are copied as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hailmesh.hail.errors import ImageError
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.media import OCI_INDEX, OCI_MANIFEST

_GO_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def encode(document: Any) -> bytes:
    """Compact JSON, escaped as Go's encoding/json does."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_GO_ESCAPES).encode()


def decode(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; ImageError names `what` if it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{what} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ImageError(f"{what} is not a JSON object")
    return document


def _descriptors(document: Mapping[str, Any], key: str, what: str) -> tuple[Descriptor, ...]:
    entries = document.get(key)
    if not isinstance(entries, list):
        raise ImageError(f"{what} has no list {key!r}")
    return tuple(Descriptor.of(entry) for entry in entries)


def _annotations(document: Mapping[str, Any], what: str) -> dict[str, str]:
    annotations = document.get("annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(text, str) for text in annotations.values()):
        raise ImageError(f"the annotations of {what} must be strings by name")
    return annotations


@dataclass(frozen=True, slots=True)
class Index:
    """An image index: the manifests of which an image, or a whole layout, consists."""

    manifests: Sequence[Descriptor]
    annotations: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The document's bytes."""
        document: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [manifest.document() for manifest in self.manifests],
        }
        if self.annotations:
            document["annotations"] = dict(sorted(self.annotations.items()))
        return encode(document)

    @classmethod
    def decode(cls, data: bytes, what: str) -> Index:
        """From the document's bytes; ImageError names `what` if they are no index."""
        document = decode(data, what)
        if document.get("mediaType", OCI_INDEX) != OCI_INDEX:
            raise ImageError(f"{what} is a {document['mediaType']}, expected an OCI image index")
        return cls(_descriptors(document, "manifests", what), _annotations(document, what))


@dataclass(frozen=True, slots=True)
class Manifest:
    """An image manifest: a configuration and layers. `artifact_type` says of what kind, if not an image."""

    config: Descriptor
    layers: Sequence[Descriptor]
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The document's bytes."""
        document: dict[str, Any] = {"schemaVersion": 2, "mediaType": OCI_MANIFEST}
        if self.artifact_type:
            document["artifactType"] = self.artifact_type
        document["config"] = self.config.document()
        document["layers"] = [layer.document() for layer in self.layers]
        if self.annotations:
            document["annotations"] = dict(sorted(self.annotations.items()))
        return encode(document)

    @classmethod
    def decode(cls, data: bytes, what: str) -> Manifest:
        """From the document's bytes; ImageError names `what` if they are no manifest."""
        document = decode(data, what)
        if document.get("mediaType", OCI_MANIFEST) != OCI_MANIFEST:
            raise ImageError(f"{what} is a {document['mediaType']}, expected an OCI image manifest")
        artifact_type = document.get("artifactType", "")
        if not isinstance(artifact_type, str):
            raise ImageError(f"the artifactType of {what} must be a string")
        return cls(
            Descriptor.of(document.get("config")),
            _descriptors(document, "layers", what),
            artifact_type,
            _annotations(document, what),
        )
