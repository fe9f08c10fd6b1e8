"""The local store: an OCI image layout on disk, safe to kill at any moment and to share between processes.

index.json lists the images by name and is replaced as a whole, under a lock. Whoever writes blobs holds
another lock, shared; `gc` holds it alone, so that it never takes a blob that is about to be named.

Layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hailmesh.hail.errors import ImageError, NotFound, UsageError
from hailmesh.oci.blobs import Blobs
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.digest import hexadecimal
from hailmesh.oci.files import locked, settle, temporary
from hailmesh.oci.index import Index, Manifest
from hailmesh.oci.media import OCI_INDEX, OCI_MANIFEST, REF_NAME
from hailmesh.oci.reference import Reference, digest_prefix

_MAX_DEPTH = 4
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Listed:
    """An image in the store. `reference` is '' if it has lost its name; `size` counts all its blobs;
    `annotations` are the image's own."""

    reference: str
    digest: str
    size: int
    annotations: Mapping[str, str]


class Store(Blobs):
    """The images of one machine, in the folder `root`, which is made if it isn't there."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._index = root / "index.json"
        self._index_lock = root / ".index.lock"
        if not (self._index.exists() and (root / "oci-layout").exists()):
            with locked(self._index_lock, exclusive=True):
                if not self._index.exists():
                    self._replace(self._index, Index(()).encode())
                self._replace(root / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')

    def put_manifest(self, document: Index | Manifest) -> Descriptor:
        """Stores a manifest or index; what it refers to should be there already."""
        return self.put(document.encode(), OCI_INDEX if isinstance(document, Index) else OCI_MANIFEST)

    def tag(self, reference: str, image: Descriptor) -> None:
        """Names an image NAME:TAG. One that had the name stays, nameless, until `gc`.

        NotFound if the store doesn't hold the image.
        """
        name = Reference.parse(reference)
        if name.digest:
            raise UsageError(f"{reference!r} can't be given as a name: write NAME:TAG")
        plain = Descriptor(image.media_type, image.digest, image.size)
        with self.writing(), self._changing() as entries:
            if not self.has(image.digest):
                raise NotFound(f"{image.digest} is not in the store {self.root}, so it can't be named {name}")
            former = [entry for entry in entries if _name(entry) == str(name)]
            others = [entry for entry in entries if entry not in former]
            named = {entry.digest for entry in others} | {image.digest}
            nameless = [
                Descriptor(entry.media_type, entry.digest, entry.size)
                for entry in former
                if entry.digest not in named
            ]
            entries[:] = [
                *(entry for entry in others if _name(entry) or entry.digest != image.digest),
                *nameless,
                plain.annotated(**{REF_NAME: str(name)}),
            ]

    def remove(self, reference: str) -> Descriptor:
        """Takes a name away; a digest loses all its names. The blobs go with the next `gc`."""
        image = self.resolve(reference)
        by_digest = "@" in reference or reference.startswith("sha256:")
        name = "" if by_digest else str(Reference.parse(reference))
        with self._changing() as entries:
            named = [entry for entry in entries if _name(entry) == name]
            entries[:] = [
                entry
                for entry in entries
                if (entry not in named if name and named else entry.digest != image.digest)
            ]
        return image

    def entries(self) -> tuple[Descriptor, ...]:
        """index.json's entries; the name is in the annotation REF_NAME, if the image has one."""
        return tuple(Index.decode(self._index.read_bytes(), str(self._index)).manifests)

    def resolve(self, reference: str) -> Descriptor:
        """The image of a NAME (its tag `latest`), NAME:TAG, NAME@digest, digest or start of a digest.

        NotFound says what there is instead; UsageError if the start of a digest fits several.
        """
        entries = self.entries()
        if not reference.startswith("sha256:"):
            name = Reference.parse(reference)
            for entry in entries:
                own, _, tag = _name(entry).rpartition(":")
                if own == name.name and (entry.digest == name.digest if name.digest else tag == name.tag):
                    return entry
        prefix = digest_prefix(reference)
        fits = {
            entry.digest: entry
            for entry in entries
            if prefix and hexadecimal(entry.digest).startswith(prefix)
        }
        if len(fits) > 1:
            raise UsageError(f"{reference!r} fits {len(fits)} images; give more of the digest")
        for entry in fits.values():
            return entry
        raise NotFound(_nothing_called(reference, entries))

    def ls(self) -> list[Listed]:
        """All images, by name; ImageError if one of them is damaged."""
        listed = []
        for entry in self.entries():
            sizes = {blob.digest: blob.size for blob in self.walk(entry)}
            kind = Index if entry.media_type == OCI_INDEX else Manifest
            annotations = kind.decode(self.read(entry), entry.digest).annotations
            listed.append(Listed(_name(entry), entry.digest, sum(sizes.values()), annotations))
        return sorted(listed, key=lambda image: (image.reference == "", image.reference, image.digest))

    def inspect(self, reference: str) -> dict[str, Any]:
        """All that an image's documents say, as JSON: its annotations, and each child with its layers."""
        image = self.resolve(reference)
        index = Index.decode(self.read(image), image.digest)
        children = []
        for child in index.manifests:
            manifest = Manifest.decode(self.read(child), child.digest)
            children.append(
                {
                    **child.document(),
                    "artifactType": manifest.artifact_type,
                    "config": manifest.config.document(),
                    "layers": [layer.document() for layer in manifest.layers],
                }
            )
        names = [_name(entry) for entry in self.entries() if entry.digest == image.digest and _name(entry)]
        return {
            "digest": image.digest,
            "names": names,
            "annotations": dict(index.annotations),
            "manifests": children,
        }

    def gc(self, keep: Collection[str] = ()) -> list[str]:
        """Removes images without a name, and blobs that no image refers to; returns the blobs' digests.

        `keep` holds digests of nameless images that are in use. Waits for writers. ImageError, and nothing is
        removed, if a manifest can't be read: what it refers to is then unknown.
        """
        with locked(self._write_lock, exclusive=True):
            with self._changing() as entries:
                entries[:] = [entry for entry in entries if _name(entry) or entry.digest in keep]
                alive = {blob.digest for entry in entries for blob in self.walk(entry)}
            return self._sweep(alive)

    def walk(self, descriptor: Descriptor, depth: int = 0) -> Iterator[Descriptor]:
        """A manifest's descriptor and, depth first, all that it refers to. ImageError if one of the
        documents is damaged or indexes nest without end."""
        if depth > _MAX_DEPTH:
            raise ImageError(f"{descriptor.digest} lies more than {_MAX_DEPTH} indexes deep")
        yield descriptor
        if descriptor.media_type == OCI_INDEX:
            for child in Index.decode(self.read(descriptor), descriptor.digest).manifests:
                yield from self.walk(child, depth + 1)
        elif descriptor.media_type == OCI_MANIFEST:
            manifest = Manifest.decode(self.read(descriptor), descriptor.digest)
            yield from (manifest.config, *manifest.layers)

    @contextmanager
    def _changing(self) -> Iterator[list[Descriptor]]:
        """index.json's entries, to change in place; they are written back at the end."""
        with locked(self._index_lock, exclusive=True):
            before = self.entries()
            entries = list(before)
            yield entries
            if tuple(entries) != before:
                self._replace(self._index, Index(entries).encode())

    def _replace(self, target: Path, data: bytes) -> None:
        with temporary(self._temporary) as (file, path):
            file.write(data)
            settle(file, path, target, _MODE)


def _name(entry: Descriptor) -> str:
    return entry.annotations.get(REF_NAME, "")


def _nothing_called(reference: str, entries: Collection[Descriptor]) -> str:
    names = sorted(filter(None, map(_name, entries)))
    base = reference.partition(":")[0].partition("@")[0]
    alike = [name for name in names if name.partition(":")[0] == base]
    there = ", ".join(alike or names) or "nothing yet; make one with `hailmesh oci build`"
    return f"no image {reference!r} in the store; it holds {there}"
