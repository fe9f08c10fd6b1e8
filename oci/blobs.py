"""Content-addressed blobs in a folder: each appears by rename, once it is whole and durable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from hailmesh.hail.errors import ImageError, NotFound
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.digest import hexadecimal, of_bytes, of_descriptor
from hailmesh.oci.files import locked, settle, temporary

MAX_MANIFEST = 4 << 20
"""Bytes of a manifest or index that are read at most; registries have the same limit."""

_CHUNK = 1 << 20
_MODE = 0o444


class Blobs:
    """The blobs below `root`, in blobs/sha256, under their digests. Half-written ones lie in .tmp."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / "blobs" / "sha256"
        self._temporary = root / ".tmp"
        self._write_lock = root / ".write.lock"
        for folder in (self._folder, self._temporary):
            folder.mkdir(parents=True, exist_ok=True)

    def writing(self) -> AbstractContextManager[None]:
        """Held while blobs are put and not yet named: `gc` waits for its end."""
        return locked(self._write_lock, exclusive=False)

    def put(
        self, content: bytes | Path | BinaryIO, media_type: str, annotations: Mapping[str, str] | None = None
    ) -> Descriptor:
        """Stores bytes, a file, or what a stream still holds. Content that is already there is kept once; a
        copy of it that has gone bad is replaced."""
        with self.writing():
            if isinstance(content, bytes):
                digest, size = of_bytes(content), len(content)
                if not self._intact(digest, size):
                    digest, size = self._write(iter((content,)))
            elif isinstance(content, Path):
                with content.open("rb") as file:
                    digest, size = of_descriptor(file.fileno())
                    if not self._intact(digest, size):
                        digest, size = self._write(iter(lambda: file.read(_CHUNK), b""))
            else:
                digest, size = self._write(iter(lambda: content.read(_CHUNK), b""))
        return Descriptor(media_type, digest, size, dict(annotations or {}))

    def has(self, digest: str) -> bool:
        """Whether a blob of this digest is there (its content is checked when it is read)."""
        return self._path(digest).exists()

    def open_verified(self, blob: Descriptor) -> int:
        """An open file descriptor, at position 0, of a blob that was read through it and found intact.

        The caller closes it. ImageError names the digest if the content differs in size or digest; NotFound
        if there is no such blob.
        """
        try:
            fd = os.open(self._path(blob.digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"blob {blob.digest} is not in the store {self.root}") from None
        try:
            digest, size = of_descriptor(fd)
            if size != blob.size:
                raise ImageError(
                    f"blob {blob.digest} has {size} bytes, not {blob.size}; build or pull its image again"
                )
            if digest != blob.digest:
                raise ImageError(
                    f"blob {blob.digest} is damaged, its content is {digest}; build or pull its image again"
                )
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, descriptor: Descriptor, limit: int = MAX_MANIFEST) -> bytes:
        """The verified content of a small blob; ImageError if it is larger than `limit` bytes."""
        if descriptor.size > limit:
            raise ImageError(
                f"blob {descriptor.digest} has {descriptor.size} bytes, at most {limit} are taken"
            )
        with os.fdopen(self.open_verified(descriptor), "rb") as file:
            data = file.read(limit + 1)
        if of_bytes(data) != descriptor.digest:
            raise ImageError(f"blob {descriptor.digest} changed while it was read")
        return data

    def _path(self, digest: str) -> Path:
        return self._folder / hexadecimal(digest)

    def _intact(self, digest: str, size: int) -> bool:
        try:
            os.close(self.open_verified(Descriptor("", digest, size)))
        except (ImageError, NotFound):
            return False
        return True

    def _write(self, chunks: Iterator[bytes]) -> tuple[str, int]:
        state, size = hashlib.sha256(), 0
        with temporary(self._temporary) as (file, path):
            for chunk in chunks:
                state.update(chunk)
                size += len(chunk)
                file.write(chunk)
            settle(file, path, self._folder / state.hexdigest(), _MODE)
        return "sha256:" + state.hexdigest(), size

    def _sweep(self, alive: set[str]) -> list[str]:
        """Removes all blobs but `alive`, and what was left half-written; the write lock is held alone."""
        removed = []
        for path in sorted(self._folder.iterdir()):
            digest = "sha256:" + path.name
            if digest not in alive:
                path.unlink()
                removed.append(digest)
        for path in self._temporary.iterdir():
            path.unlink()
        return removed
