"""Converts the reference units: `python -m hailmesh.oci.units.build [-o build/units] [NAME…]`.

Each unit becomes a folder that `hailmesh oci build` takes: its unit.toml, graphs, tokenizer, configuration
and licences. `assets` (pictures and a recording to try them with) goes to a folder beside the units. What is
already converted from the same sources by the same code is left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from hailmesh.hail.errors import MeshError, NotFound, UsageError
from hailmesh.oci.convert.fetch import Package
from hailmesh.oci.units.source import Sources

UNITS = ("vision", "llm", "asr")
ASSETS = "assets"
STAMP = ".stamp"

_HERE = Path(__file__).resolve().parent


class Converter(Protocol):
    """A unit's `convert` module."""

    PACKAGES: tuple[Package, ...]

    def convert(self, sources: Sources, out: Path) -> None: ...


def _converter(name: str) -> Converter:
    module = f"hailmesh.oci.units.{ASSETS if name == ASSETS else name + '.convert'}"
    return cast(Converter, importlib.import_module(module))


def stamp_of(name: str) -> str:
    """A digest of everything that shapes the result: the converters' source, and the pins inside it."""
    own = [] if name == ASSETS else sorted((_HERE / name).iterdir())
    digest = hashlib.sha256()
    for path in [
        *sorted((_HERE.parent / "convert").glob("*.py")),
        _HERE / "source.py",
        _HERE / "assets.py",
        *own,
    ]:
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def convert(name: str, target: Path, downloads: Path) -> bool:
    """Converts one unit into the folder `target`; False if it was up to date.

    The folder appears whole or not at all: a conversion that is cut short leaves the former result.
    """
    stamp = stamp_of(name)
    with _locked(target.parent):
        kept = target / STAMP
        if kept.exists() and kept.read_text() == stamp:
            return False
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as folder:
            scratch, out = Path(folder) / "scratch", Path(folder) / "out"
            scratch.mkdir()
            out.mkdir()
            try:
                _converter(name).convert(Sources(downloads, scratch), out)
            except ModuleNotFoundError as error:
                raise UsageError(
                    f"converting needs the package {error.name}: install hailmesh[build]"
                ) from error
            if name != ASSETS:
                for file in ("unit.toml", "NOTICE"):
                    shutil.copyfile(_HERE / name / file, out / file)
            (out / STAMP).write_text(stamp)
            if target.exists():
                target.rename(Path(folder) / "former")
            out.rename(target)
    return True


def build(names: Iterable[str], out: Path, downloads: Path | None = None) -> dict[str, Path]:
    """Converts the named units (and `assets`) below `out`; returns each one's folder.

    NotFound for an unknown name or a package that can't be had; ImageError for one that differs from its pin.
    """
    names = list(names) or [*UNITS, ASSETS]
    for name in names:
        if name not in (*UNITS, ASSETS):
            raise NotFound(f"no reference unit {name!r}; there are {', '.join(UNITS)} and {ASSETS}")
    folders = {name: (out.parent / ASSETS if name == ASSETS else out / name) for name in names}
    for name, folder in folders.items():
        start = time.monotonic()
        made = convert(name, folder, downloads or out.parent / "downloads")
        took = f"converted in {time.monotonic() - start:.1f} s" if made else "up to date"
        print(f"{name}: {took}, {folder}", file=sys.stderr)
    return folders


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="hailmesh.oci.units.build", description="Convert the reference units."
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("build/units"), help="folder for the units")
    parser.add_argument(
        "--downloads", type=Path, help="folder that keeps the packages (default: beside the units)"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(UNITS)} or {ASSETS}; all if none"
    )
    arguments = parser.parse_args()
    try:
        build(arguments.names, arguments.out, arguments.downloads)
    except MeshError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
