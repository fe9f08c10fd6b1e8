from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hailmesh.hail.errors import NotFound, UsageError
from hailmesh.oci.build import build as build_image
from hailmesh.oci.image import load
from hailmesh.oci.store import Store
from hailmesh.oci.units import build
from hailmesh.oci.units.source import Sources


class Recorded:
    """Stands in for a unit's converter: writes one file, and can be made to fail."""

    PACKAGES = ()

    def __init__(self) -> None:
        self.runs = 0
        self.error: BaseException | None = None

    def convert(self, sources: Sources, out: Path) -> None:
        self.runs += 1
        (out / "graph.onnx").write_text(f"run {self.runs}")
        if self.error:
            raise self.error


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    monkeypatch.setattr(build, "_converter", lambda name: recorded)
    return recorded


def test_a_unit_is_converted_once_until_its_source_changes(
    converter: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, downloads = tmp_path / "units/llm", tmp_path / "downloads"
    assert build.convert("llm", target, downloads) is True
    assert build.convert("llm", target, downloads) is False
    assert (target / "unit.toml").read_text().startswith("[unit]")
    monkeypatch.setattr(build, "stamp_of", lambda name: "another")
    assert build.convert("llm", target, downloads) is True
    assert (target / "graph.onnx").read_text() == "run 2"
    assert sorted(path.name for path in target.parent.iterdir()) == [".lock", "llm"]


def test_a_conversion_that_fails_leaves_the_former_result(
    converter: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "units/llm"
    build.convert("llm", target, tmp_path)
    monkeypatch.setattr(build, "stamp_of", lambda name: "another")
    converter.error = RuntimeError("the power went")
    with pytest.raises(RuntimeError):
        build.convert("llm", target, tmp_path)
    assert (target / "graph.onnx").read_text() == "run 1"
    assert sorted(path.name for path in target.parent.iterdir()) == [".lock", "llm"]


def test_a_missing_package_says_what_to_install(converter: Recorded, tmp_path: Path) -> None:
    converter.error = ModuleNotFoundError("No module named 'onnx'", name="onnx")
    with pytest.raises(UsageError, match=r"needs the package onnx: install hailmesh\[build\]"):
        build.convert("llm", tmp_path / "units/llm", tmp_path)


def test_an_unknown_unit_is_named_before_anything_is_converted(converter: Recorded, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no reference unit 'nose'; there are vision, llm, asr and assets"):
        build.build(["llm", "nose"], tmp_path / "units")
    assert converter.runs == 0


def test_the_stamp_follows_the_units_own_files_and_the_shared_ones() -> None:
    stamps = {name: build.stamp_of(name) for name in (*build.UNITS, build.ASSETS)}
    assert len(set(stamps.values())) == 4
    assert stamps == {name: build.stamp_of(name) for name in stamps}


def test_what_is_up_to_date_needs_none_of_the_heavy_packages(units: Path) -> None:
    """So a second start is fast."""
    script = (
        "import sys; from pathlib import Path; from hailmesh.oci.units.build import build;"
        f"build(['vision', 'llm', 'asr', 'assets'], Path({str(units)!r}));"
        "assert not {'onnx', 'numpy', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("up to date") == 4


@pytest.fixture
def images(units: Path, tmp_path: Path) -> Any:
    """The three units as images, around an empty module."""
    module = tmp_path / "guest.wasm"
    module.write_bytes(b"\0asm\x01\0\0\0")
    store = Store(tmp_path / "store")
    for name in build.UNITS:
        build_image(units / name / "unit.toml", store, guests=lambda guest: module)
    return {name: load(store, f"{name}:1.0.0") for name in build.UNITS}


def test_the_three_units_become_images_that_load(images: Any) -> None:
    assert {name: image.modality for name, image in images.items()} == {
        "vision": "image", "llm": "text", "asr": "speech",
    }  # fmt: skip
    assert list(images["vision"].graphs) == ["classify"]
    assert list(images["llm"].graphs) == ["decoder"]
    assert list(images["asr"].graphs) == ["encoder", "decoder"]


def test_each_image_records_its_licences(images: Any) -> None:
    assert images["vision"].licences == "Apache-2.0 AND MIT"
    assert images["llm"].licences == "Apache-2.0 AND MIT"
    assert images["asr"].licences == "MIT AND Apache-2.0 AND MIT-0"
    for name, licence in (("vision", "Apache-2.0"), ("llm", "Apache-2.0"), ("asr", "MIT")):
        for graph in images[name].graphs.values():
            assert graph.file.annotations["org.opencontainers.image.licenses"] == licence


def test_the_arena_holds_the_keys_and_values_of_every_slot(images: Any) -> None:
    llm, asr = images["llm"], images["asr"]
    decoder = llm.graphs["decoder"]
    assert decoder.context * decoder.slots * 30 * 2 * 3 * 64 * 4 <= llm.arena_bytes
    decoder = asr.graphs["decoder"]
    own, across = decoder.context * 4 * 2 * 6 * 64 * 4, 1500 * 4 * 2 * 6 * 64 * 4
    window = 30 * 16_000 * 4 + 3000 * 80 * 4
    assert (own + across + window) * asr.slots <= asr.arena_bytes


def test_every_asset_is_what_its_manifest_says(assets: Path) -> None:
    manifest = json.loads((assets / "manifest.json").read_bytes())
    assert {entry["file"] for entry in manifest} == {
        "coffee.png", "chelsea.png", "astronaut.png", "motorcycle_left.png", "beckett.wav",
    }  # fmt: skip
    for entry in manifest:
        data = (assets / entry["file"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert entry["licence"]
        assert entry["origin"]
