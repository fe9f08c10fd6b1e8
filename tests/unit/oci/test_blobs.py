from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path

import pytest

from hailmesh.hail.errors import ImageError, NotFound
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.store import Store

DATA = b"weights" * 300_000
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()


def blob_path(store: Store, digest: str) -> Path:
    return store.root / "blobs" / "sha256" / digest.removeprefix("sha256:")


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_bytes_a_file_and_a_stream_of_the_same_content_are_one_blob(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    puts = [
        store.put(DATA, "a/b"),
        store.put(tmp_path / "file", "a/b"),
        store.put(io.BytesIO(DATA), "a/b"),
    ]
    assert puts == [Descriptor("a/b", DIGEST, len(DATA))] * 3
    assert [path.name for path in (store.root / "blobs/sha256").iterdir()] == [DIGEST[7:]]


def test_an_intact_blob_is_not_written_again(store: Store) -> None:
    store.put(DATA, "a/b")
    before = blob_path(store, DIGEST).stat().st_ino
    store.put(DATA, "a/b")
    assert blob_path(store, DIGEST).stat().st_ino == before


def test_a_damaged_blob_is_healed_by_putting_it_again(store: Store, tmp_path: Path) -> None:
    blob = store.put(DATA, "a/b")
    damage(blob_path(store, DIGEST), DATA[:-1] + b"!")
    (tmp_path / "file").write_bytes(DATA)
    store.put(tmp_path / "file", "a/b")
    os.close(store.open_verified(blob))


def test_blobs_are_read_only_and_nothing_half_written_is_left(store: Store) -> None:
    store.put(DATA, "a/b")
    assert stat.S_IMODE(blob_path(store, DIGEST).stat().st_mode) == 0o444
    assert list((store.root / ".tmp").iterdir()) == []


def test_a_stream_that_breaks_leaves_nothing(store: Store) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 1 << 20:
                raise OSError("the line went dead")
            return super().read(size)

    with pytest.raises(OSError, match="dead"):
        store.put(Broken(DATA), "a/b")
    assert list((store.root / "blobs/sha256").iterdir()) == []
    assert list((store.root / ".tmp").iterdir()) == []


def test_a_verified_descriptor_reads_the_content_from_its_start(store: Store) -> None:
    fd = store.open_verified(store.put(DATA, "a/b"))
    with os.fdopen(fd, "rb") as file:
        assert file.read() == DATA
        assert not os.get_inheritable(file.fileno())


def test_a_verified_descriptor_outlives_the_name_of_its_blob(store: Store) -> None:
    fd = store.open_verified(store.put(DATA, "a/b"))
    assert store.gc() == [DIGEST]
    with os.fdopen(fd, "rb") as file:
        assert file.read() == DATA


@pytest.mark.parametrize("content", [DATA[:-1] + b"!", DATA[:-1], DATA + b"!", b""])
def test_a_damaged_blob_is_refused_by_its_digest(store: Store, content: bytes) -> None:
    blob = store.put(DATA, "a/b")
    damage(blob_path(store, DIGEST), content)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ImageError, match=DIGEST):
        store.open_verified(blob)
    with pytest.raises(ImageError, match=DIGEST):
        store.read(blob)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_a_descriptor_that_lies_about_the_size_is_refused(store: Store) -> None:
    store.put(DATA, "a/b")
    with pytest.raises(ImageError, match=f"{DIGEST} has {len(DATA)} bytes, not 5"):
        store.open_verified(Descriptor("a/b", DIGEST, 5))


def test_a_missing_blob_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match=DIGEST):
        store.open_verified(Descriptor("a/b", DIGEST, 5))


@pytest.mark.parametrize(
    "digest", ["", "sha256:../../etc/passwd", "sha256:" + "A" * 64, "md5:" + "0" * 32, "sha256:" + "0" * 63]
)
def test_a_malformed_digest_never_becomes_a_path(store: Store, digest: str) -> None:
    with pytest.raises(ImageError, match="expected a digest"):
        store.open_verified(Descriptor("a/b", digest, 0))


def test_a_document_larger_than_a_manifest_may_be_is_not_read(store: Store) -> None:
    blob = store.put(DATA, "a/b")
    with pytest.raises(ImageError, match="at most 1000"):
        store.read(blob, limit=1000)
