from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hailmesh.hail.errors import ImageError, NotFound, UsageError
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.digest import of_bytes
from hailmesh.oci.image import load
from hailmesh.oci.index import Index, Manifest
from hailmesh.oci.store import Store

Make = Callable[[], Descriptor]


def image(store: Store, word: str) -> Descriptor:
    """An index of no manifests, told apart by an annotation."""
    return store.put_manifest(Index((), {"word": word}))


def test_a_new_store_is_a_valid_empty_layout(store: Store) -> None:
    assert json.loads((store.root / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    assert json.loads((store.root / "index.json").read_bytes())["manifests"] == []
    assert store.ls() == []


def test_opening_a_store_again_keeps_its_images(store: Store) -> None:
    store.tag("eyes:1.0.0", image(store, "a"))
    assert [entry.reference for entry in Store(store.root).ls()] == ["eyes:1.0.0"]


def test_a_layout_that_another_tool_wrote_is_opened_as_it_is(store: Store, tmp_path: Path) -> None:
    part = store.put(b"{}", "x/y")
    plain = store.put_manifest(Manifest(part, [part], annotations={"who": "another tool"}))
    store.tag("plain", plain)
    layout = tmp_path / "layout"
    shutil.copytree(store.root / "blobs", layout / "blobs")
    shutil.copy(store.root / "oci-layout", layout)
    index = json.loads((store.root / "index.json").read_bytes())
    (layout / "index.json").write_text(
        json.dumps({"schemaVersion": 2, "manifests": index["manifests"]}, indent=2)
    )
    (listed,) = Store(layout).ls()
    assert (listed.reference, listed.digest) == ("plain:latest", plain.digest)
    assert listed.annotations == {"who": "another tool"}
    (layout / "index.json").unlink()
    assert Store(layout).ls() == []


def test_an_image_is_found_by_name_tag_digest_and_the_start_of_it(store: Store) -> None:
    found = image(store, "a")
    store.tag("eyes:1.0.0", found)
    store.tag("eyes", found)
    hexadecimal = found.digest.removeprefix("sha256:")
    for reference in (
        "eyes", "eyes:latest", "eyes:1.0.0", f"eyes@{found.digest}", f"eyes:1.0.0@{found.digest}",
        found.digest, hexadecimal, hexadecimal[:8], "sha256:" + hexadecimal[:4],
    ):  # fmt: skip
        assert store.resolve(reference).digest == found.digest, reference


def test_a_name_with_another_names_digest_is_not_found(store: Store) -> None:
    found = image(store, "a")
    store.tag("eyes", found)
    with pytest.raises(NotFound):
        store.resolve(f"ears@{found.digest}")


def test_what_is_missing_is_answered_with_what_there_is(store: Store) -> None:
    with pytest.raises(NotFound, match="nothing yet"):
        store.resolve("eyes")
    store.tag("eyes:1.0.0", image(store, "a"))
    store.tag("ears:2.0.0", image(store, "b"))
    with pytest.raises(NotFound, match=r"no image 'eyes:3'.* it holds eyes:1.0.0$"):
        store.resolve("eyes:3")
    with pytest.raises(NotFound, match=r"it holds ears:2.0.0, eyes:1.0.0$"):
        store.resolve("nose")


def test_a_start_that_fits_two_digests_is_refused(store: Store) -> None:
    seen: dict[str, str] = {}
    for word in map(str, range(100_000)):
        digest = image_digest(word)
        if digest[7:11] in seen:
            break
        seen[digest[7:11]] = word
    store.tag("one", image(store, word))
    store.tag("two", image(store, seen[digest[7:11]]))
    with pytest.raises(UsageError, match="fits 2 images"):
        store.resolve("sha256:" + digest[7:11])


def image_digest(word: str) -> str:
    return of_bytes(Index((), {"word": word}).encode())


@pytest.mark.parametrize(
    "reference", ["", "Eyes", "eyes:", "eyes:a b", "../eyes", "eyes@", "eyes@sha256:12", "a//b"]
)
def test_a_malformed_reference_says_how_to_write_one(store: Store, reference: str) -> None:
    with pytest.raises(UsageError, match="NAME:TAG"):
        store.resolve(reference)


def test_a_tag_moves_and_the_former_image_stays_without_a_name(store: Store) -> None:
    old, new = image(store, "old"), image(store, "new")
    store.tag("eyes", old)
    store.tag("eyes", new)
    assert store.resolve("eyes").digest == new.digest
    assert store.resolve(old.digest).digest == old.digest
    assert [(entry.reference, entry.digest) for entry in store.ls()] == [
        ("eyes:latest", new.digest),
        ("", old.digest),
    ]
    store.tag("eyes", old)
    assert sorted(entry.reference for entry in store.ls()) == ["", "eyes:latest"]


def test_a_name_goes_alone_and_a_digest_takes_all_its_names(store: Store) -> None:
    found = image(store, "a")
    for name in ("eyes:1", "eyes:2", "eyes:3"):
        store.tag(name, found)
    assert store.remove("eyes:1").digest == found.digest
    assert [entry.reference for entry in store.ls()] == ["eyes:2", "eyes:3"]
    store.remove(found.digest[7:20])
    assert store.ls() == []
    with pytest.raises(NotFound):
        store.remove("eyes:2")


def test_only_what_is_there_can_be_named(store: Store) -> None:
    with pytest.raises(NotFound, match="can't be named"):
        store.tag("eyes", Descriptor("x/y", "sha256:" + "0" * 64, 1))
    with pytest.raises(UsageError, match="NAME:TAG"):
        store.tag("eyes@sha256:" + "0" * 64, image(store, "a"))


def test_gc_takes_what_no_image_needs_and_keeps_shared_blobs(
    store: Store, make: Make, unit_folder: Path
) -> None:
    first = make()
    before = {blob.digest for blob in store.walk(first)}
    (unit_folder / "guest.wasm").write_bytes(b"\0asm\x01\0\0\0fixed")
    second = make()
    after = {blob.digest for blob in store.walk(second)}
    assert len(before & after) >= 6, "weights, tokenizer and licences are shared"
    assert store.gc(keep=[first.digest]) == []
    assert set(store.gc()) == before - after
    load(store, "ears")
    assert all(store.has(digest) for digest in after)
    assert store.gc() == []


def test_a_code_fix_ships_only_the_code(store: Store, make: Make, unit_folder: Path) -> None:
    before = {blob.digest for blob in store.walk(make())}
    (unit_folder / "guest.wasm").write_bytes(b"\0asm\x01\0\0\0fixed")
    new = [blob for blob in store.walk(make()) if blob.digest not in before]
    assert len(new) == 4, "index, code manifest, its configuration, the module"
    assert sum(blob.size for blob in new) < 4096


def test_gc_removes_nothing_while_a_manifest_is_unreadable(store: Store, make: Make) -> None:
    made = make()
    stray = store.put(b"stray", "a/b")
    path = store.root / "blobs/sha256" / made.digest.removeprefix("sha256:")
    path.chmod(0o644)
    path.write_bytes(b"{}")
    with pytest.raises(ImageError, match=made.digest):
        store.gc()
    assert store.has(stray.digest)
    assert store.resolve("ears").digest == made.digest


def test_ls_counts_all_blobs_once(store: Store, make: Make) -> None:
    made = make()
    sizes = {blob.digest: blob.size for blob in store.walk(made)}
    listed = {entry.reference: entry for entry in store.ls()}
    assert set(listed) == {"ears:1.2.3", "ears:latest"}
    assert listed["ears:1.2.3"].size == sum(sizes.values()) > 14_000
    assert listed["ears:1.2.3"].annotations["org.hailmesh.unit.modality"] == "speech"


def test_inspect_shows_names_annotations_and_every_layer(store: Store, make: Make) -> None:
    made = make()
    shown = json.loads(json.dumps(store.inspect("ears:1.2.3")))
    assert shown["digest"] == made.digest
    assert shown["names"] == ["ears:1.2.3", "ears:latest"]
    code, model = shown["manifests"]
    assert code["platform"] == {"architecture": "wasm", "os": "wasip1"}
    assert [layer["annotations"]["org.cncf.model.filepath"] for layer in model["layers"]] == [
        "encoder.onnx", "decoder.onnx", "tokenizer.json", "unit.json", "LICENSE",
    ]  # fmt: skip


def test_indexes_that_nest_without_end_are_refused(store: Store) -> None:
    inner = image(store, "core")
    for _ in range(6):
        inner = store.put_manifest(Index((inner,)))
    store.tag("onion", inner)
    with pytest.raises(ImageError, match="indexes deep"):
        list(store.walk(inner))
