from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hailmesh.hail.errors import ImageError, NotFound, UsageError
from hailmesh.oci.build import build
from hailmesh.oci.descriptor import Descriptor, Platform
from hailmesh.oci.image import load
from hailmesh.oci.index import Index, Manifest
from hailmesh.oci.store import Store

Make = Callable[[], Descriptor]


def content(store: Store, blob: Descriptor) -> bytes:
    with os.fdopen(store.open_verified(blob), "rb") as file:
        return file.read()


def children(store: Store, image: Descriptor) -> tuple[Index, Manifest, Manifest]:
    index = Index.decode(store.read(image), "index")
    code, model = (Manifest.decode(store.read(child), "child") for child in index.manifests)
    return index, code, model


def test_an_image_loads_as_what_was_built(store: Store, make: Make, unit_folder: Path) -> None:
    made = make()
    image = load(store, "ears:1.2.3")
    assert (image.name, image.version, image.digest) == ("ears", "1.2.3", made.digest)
    assert (image.slots, image.threads, image.lane, image.kernels) == (3, 2, "urgent", ("logmel",))
    assert (image.arena_bytes, image.guest_bytes, image.session_lived) == (8 << 20, 1 << 20, False)
    assert image.config == {"language": "en", "end": 50256}
    assert image.weights == 14_000
    assert image.licences == "MIT AND (Apache-2.0 OR MIT)"
    assert content(store, image.module) == (unit_folder / "guest.wasm").read_bytes()
    decoder = image.graphs["decoder"]
    assert (decoder.kind, decoder.context, decoder.slots) == ("sequence", 448, 2)
    assert content(store, decoder.file) == (unit_folder / "decoder.onnx").read_bytes()
    assert decoder.tokenizer is not None
    assert content(store, decoder.tokenizer) == b"{}"
    assert image.graphs["encoder"].tokenizer is None


def test_it_is_named_by_version_and_as_the_latest(store: Store, make: Make, unit_folder: Path) -> None:
    first = make()
    toml = unit_folder / "unit.toml"
    toml.write_text(toml.read_text().replace("1.2.3", "1.3.0+fast"))
    second = make()
    assert store.resolve("ears").digest == second.digest == store.resolve("ears:1.3.0_fast").digest
    assert store.resolve("ears:1.2.3").digest == first.digest


def test_the_same_input_gives_the_same_digest_in_another_place(
    store: Store, make: Make, unit_folder: Path, tmp_path: Path
) -> None:
    first = make()
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(unit_folder, elsewhere)
    for path in elsewhere.iterdir():
        os.utime(path, (1, 1))
    second = build(elsewhere / "unit.toml", Store(tmp_path / "other"), guests=lambda name: Path(name))
    assert first == second


def test_source_date_epoch_dates_the_image_and_nothing_else_does(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    index, _, model = children(store, make())
    assert "org.opencontainers.image.created" not in index.annotations
    assert "createdAt" not in json.loads(store.read(model.config))["descriptor"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    index, code, model = children(store, make())
    assert index.annotations["org.opencontainers.image.created"] == "2023-11-14T22:13:20Z"
    assert json.loads(store.read(code.config))["created"] == "2023-11-14T22:13:20Z"
    assert json.loads(store.read(model.config))["descriptor"]["createdAt"] == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(UsageError, match="seconds since 1970, found 'soon'"):
        make()


def test_the_code_is_a_wasm_artifact(store: Store, make: Make) -> None:
    index, code, _ = children(store, make())
    assert index.manifests[0].platform == Platform("wasm", "wasip1")
    assert code.config.media_type == "application/vnd.wasm.config.v0+json"
    (layer,) = code.layers
    assert layer.media_type == "application/wasm"
    config = json.loads(store.read(code.config))
    assert (config["architecture"], config["os"]) == ("wasm", "wasip1")
    assert config["layerDigests"] == [layer.digest]


def test_the_model_is_a_modelpack_with_raw_layers(store: Store, make: Make) -> None:
    index, _, model = children(store, make())
    assert index.manifests[1].platform == Platform("unknown", "unknown")
    assert model.artifact_type == "application/vnd.cncf.model.manifest.v1+json"
    assert [(layer.annotations["org.cncf.model.filepath"], layer.media_type) for layer in model.layers] == [
        ("encoder.onnx", "application/vnd.cncf.model.weight.v1.raw"),
        ("decoder.onnx", "application/vnd.cncf.model.weight.v1.raw"),
        ("tokenizer.json", "application/vnd.cncf.model.weight.config.v1.raw"),
        ("unit.json", "application/vnd.cncf.model.weight.config.v1.raw"),
        ("LICENSE", "application/vnd.cncf.model.doc.v1.raw"),
    ]
    config = json.loads(store.read(model.config))
    assert config["modelfs"] == {"type": "layers", "diffIds": [layer.digest for layer in model.layers]}
    assert config["descriptor"]["licenses"] == ["MIT"]
    assert config["config"]["format"] == "onnx"


def test_licences_stand_on_the_image_its_children_and_each_file(store: Store, make: Make) -> None:
    index, code, model = children(store, make())
    key = "org.opencontainers.image.licenses"
    assert index.annotations[key] == "MIT AND (Apache-2.0 OR MIT)"
    assert [child.annotations[key] for child in index.manifests] == ["Apache-2.0 OR MIT", "MIT"]
    assert code.layers[0].annotations[key] == "Apache-2.0 OR MIT"
    decoder = model.layers[1].annotations
    assert (decoder[key], decoder["org.hailmesh.source"]) == ("MIT", "ears-weights==1.0")


def test_descriptors_in_the_index_hold_only_what_other_tools_keep(store: Store, make: Make) -> None:
    document = json.loads(store.read(make()))
    assert list(document) == ["schemaVersion", "mediaType", "manifests", "annotations"]
    for child in document["manifests"]:
        assert list(child) == ["mediaType", "digest", "size", "annotations", "platform"]


def test_generic_guests_are_asked_for_by_name(store: Store, unit_folder: Path) -> None:
    toml = unit_folder / "unit.toml"
    toml.write_text(toml.read_text().replace('"guest.wasm"', '"asr"'))
    asked = []

    def guests(name: str) -> Path:
        asked.append(name)
        return unit_folder / "guest.wasm"

    build(toml, store, guests=guests)
    assert asked == ["asr"]


def test_a_generic_guests_notices_go_along(store: Store, unit_folder: Path, tmp_path: Path) -> None:
    toml = unit_folder / "unit.toml"
    toml.write_text(toml.read_text().replace('"guest.wasm"', '"asr"'))
    built = tmp_path / "built"
    built.mkdir()
    shutil.copy(unit_folder / "guest.wasm", built / "asr.wasm")
    (built / "third-party.txt").write_text("Thanks.")
    *_, model = children(store, build(toml, store, guests=lambda name: built / f"{name}.wasm"))
    notices = model.layers[-1]
    assert notices.annotations["org.cncf.model.filepath"] == "third-party.txt"
    assert store.read(notices) == b"Thanks."


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"guest.wasm"', '"gest.wasm"', r"unit\.guest: .*gest\.wasm: No such file.* vision, llm, asr"),
        ('"guest.wasm"', '"LICENSE"', r"LICENSE is no core WebAssembly module"),
        ('"encoder.onnx"', '"enc.onnx"', r"enc\.onnx: No such file or directory; unit\.toml names it"),
        ('["LICENSE"]', '["decoder.onnx"]', r"'decoder\.onnx' is named for two different things"),
        ('"tokenizer.json"', '"unit.json"', r"'unit\.json' is named for two different things"),
    ],
)
def test_a_file_that_is_missing_or_wrong_is_named(
    unit_folder: Path, make: Make, store: Store, old: str, new: str, says: str
) -> None:
    toml = unit_folder / "unit.toml"
    toml.write_text(toml.read_text().replace(old, new))
    with pytest.raises(UsageError, match=says):
        make()
    assert store.ls() == []


class Tampered:
    """An image whose documents can be changed and put back under new digests."""

    def __init__(self, store: Store, image: Descriptor) -> None:
        self.store = store
        self.index, self.code, self.model = children(store, image)
        self.heads = list(self.index.manifests)
        self.annotations = dict(self.index.annotations)

    def load(self) -> None:
        manifests = []
        for head, manifest in zip(self.heads, (self.code, self.model), strict=True):
            stored = self.store.put_manifest(manifest)
            manifests.append(
                Descriptor(stored.media_type, stored.digest, stored.size, head.annotations, head.platform)
            )
        self.store.tag("tampered", self.store.put_manifest(Index(manifests, self.annotations)))
        load(self.store, "tampered")


@pytest.fixture
def tampered(store: Store, make: Make) -> Tampered:
    return Tampered(store, make())


def test_an_untouched_image_still_loads(tampered: Tampered) -> None:
    tampered.load()


@pytest.mark.parametrize(
    "key", ["name", "qos.penalty", "memory.arena", "memory.weights", "grants", "lifetime"]
)
def test_annotations_must_say_what_the_unit_says(tampered: Tampered, key: str) -> None:
    tampered.annotations["org.hailmesh.unit." + key] = "7"
    with pytest.raises(ImageError, match=f"annotation org.hailmesh.unit.{key} is '7'"):
        tampered.load()


def test_another_abi_is_refused_before_anything_else(tampered: Tampered) -> None:
    tampered.annotations["org.hailmesh.unit.abi"] = "2"
    with pytest.raises(ImageError, match="expected unit ABI 1, found '2'"):
        tampered.load()


def test_both_children_are_needed_once(tampered: Tampered) -> None:
    tampered.heads[1] = tampered.heads[0]
    with pytest.raises(ImageError, match=r"expected one manifest with org\.hailmesh\.role=code, found 2"):
        tampered.load()


def test_a_graph_whose_layer_is_gone_is_named(tampered: Tampered) -> None:
    model = tampered.model
    tampered.model = Manifest(model.config, [*model.layers[:1], *model.layers[2:]], model.artifact_type)
    tampered.annotations["org.hailmesh.unit.memory.weights"] = "7000"
    with pytest.raises(ImageError, match=r"no layer holds 'decoder.onnx'"):
        tampered.load()


def test_two_layers_of_one_name_are_refused(tampered: Tampered) -> None:
    model = tampered.model
    tampered.model = Manifest(model.config, [*model.layers, model.layers[0]], model.artifact_type)
    with pytest.raises(ImageError, match=r"filepath of its own, found 'encoder\.onnx'"):
        tampered.load()


def test_a_unit_json_with_an_unknown_key_is_refused_by_name(tampered: Tampered, store: Store) -> None:
    layers = list(tampered.model.layers)
    unit = json.loads(store.read(layers[3]))
    unit["run"]["root"] = True
    layers[3] = store.put(json.dumps(unit).encode(), layers[3].media_type, layers[3].annotations)
    tampered.model = Manifest(tampered.model.config, layers, tampered.model.artifact_type)
    with pytest.raises(ImageError, match=r"unit\.json: run\.root: unknown key"):
        tampered.load()


def test_a_model_of_another_kind_is_refused(tampered: Tampered) -> None:
    tampered.model = Manifest(tampered.model.config, tampered.model.layers, "application/other")
    with pytest.raises(ImageError, match="the model must be"):
        tampered.load()


def test_code_with_a_second_layer_is_refused(tampered: Tampered) -> None:
    tampered.code = Manifest(tampered.code.config, [*tampered.code.layers] * 2)
    with pytest.raises(ImageError, match="one application/wasm layer"):
        tampered.load()


def test_an_image_that_is_no_index_is_refused(store: Store, tampered: Tampered) -> None:
    store.tag("model-only", store.put_manifest(tampered.model))
    with pytest.raises(ImageError, match="a modality image is an OCI image index"):
        load(store, "model-only")


def test_a_missing_image_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="no image 'ears'"):
        load(store, "ears")
