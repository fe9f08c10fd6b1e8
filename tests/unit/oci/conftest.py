"""A small unit on disk, and an empty store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hailmesh.oci.build import build
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.store import Store

WASM = b"\0asm\x01\0\0\0"

UNIT_TOML = """
[unit]
name = "ears"
version = "1.2.3"
modality = "speech"
guest = "guest.wasm"
description = "Hears <things> & writes them down"
licences = ["MIT", "Apache-2.0 OR MIT"]
licence-files = ["LICENSE"]
config-file = "more.json"

[qos]
class = "realtime"
deadline-ms = 40
penalty = 2.5

[memory]
arena = "8MiB"
guest = "1MiB"

[grants]
kernels = ["logmel"]

[run]
slots = 3
threads = 2
lane = "urgent"

[graphs.encoder]
file = "encoder.onnx"

[graphs.decoder]
file = "decoder.onnx"
kind = "sequence"
tokenizer = "tokenizer.json"
context = 448
slots = 2

[sources."decoder.onnx"]
package = "ears-weights==1.0"
licence = "MIT"

[sources.module]
package = "ears-code==1.0"
licence = "Apache-2.0 OR MIT"

[config]
language = "en"
"""


@pytest.fixture
def unit_folder(tmp_path: Path) -> Path:
    """unit.toml and all the files it names."""
    folder = tmp_path / "ears"
    folder.mkdir()
    (folder / "unit.toml").write_text(UNIT_TOML)
    (folder / "guest.wasm").write_bytes(WASM + b"code")
    (folder / "encoder.onnx").write_bytes(b"encoder" * 1000)
    (folder / "decoder.onnx").write_bytes(b"decoder" * 1000)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "more.json").write_text('{"end": 50256}')
    (folder / "LICENSE").write_text("Do as you like.")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def make(unit_folder: Path, store: Store) -> Callable[[], Descriptor]:
    """Builds the unit as it lies on disk now."""

    def no_guest(name: str) -> Path:
        raise AssertionError(f"asked for the generic guest {name}")

    return lambda: build(unit_folder / "unit.toml", store, guests=no_guest)
