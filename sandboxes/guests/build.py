"""Builds the generic guests: `python -m hailmesh.sandboxes.guests.build [-o DIR] [--only NAME]`.

Each guest is the C files of its folder and of `common`, with the third-party sources of sources.toml,
compiled by the C compiler of the package `ziglang` to a WASI preview 1 reactor. The same sources give the
same bytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from hailmesh.hail.errors import MeshError, NotFound, UsageError
from hailmesh.sandboxes.guests import built, sources
from hailmesh.sandboxes.guests.sources import Source

_HERE = Path(__file__).resolve().parent
_SDK = _HERE.parent / "sdk"
_NOTICES = "third-party.txt"

_STACK = 512 << 10
"""Bytes. The compiler's own choice, 16 MiB, would be the least memory of every sandbox."""

# -O3 decodes no faster than -Os (measured), and is a fifth larger.
_FLAGS = ("-target", "wasm32-wasi", "-std=gnu11", "-Os", "-msimd128", "-g0", "-DNDEBUG")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_LINK = ("-mexec-model=reactor", "-s", f"-Wl,-z,stack-size={_STACK}")


def build(names: Iterable[str], out: Path, cache: Path, downloads: Path) -> dict[str, Path]:
    """Builds the named guests (all if none) into `out`; returns each one's module.

    `cache` keeps third-party sources and what is already compiled, `downloads` what came over the network.
    NotFound for an unknown name or a source that can't be had; ImageError for one that differs from its
    pin; UsageError if the compiler isn't installed or refuses the code.
    """
    names = list(names) or list(built.NAMES)
    for name in names:
        if name not in built.NAMES:
            raise NotFound(f"no generic guest {name!r}; there are {', '.join(built.NAMES)}")
    if find_spec("ziglang") is None:
        raise UsageError("building guests needs the package ziglang: install hailmesh[build]")
    used = [source for source in sources.known() if any(source.serves(name) for name in names)]
    for source in used:
        sources.fetch(source, downloads, cache / source.name)
    out.mkdir(parents=True, exist_ok=True)
    objects = {source.name: _objects(source, cache) for source in used}
    modules = {name: _compile(name, used, objects, out, cache) for name in names}
    (out / _NOTICES).write_text(_notices(cache))
    return modules


def _objects(source: Source, cache: Path) -> list[Path]:
    """The source's own C files, compiled once for all guests."""
    objects = []
    for path in sorted((cache / source.name).glob("*.c")):
        target = path.with_suffix(f".{os.getpid()}.o")
        _zig([*_FLAGS, "-c", str(path), "-o", str(target)], cache, source.name)
        objects.append(target.replace(path.with_suffix(".o")))
    return objects


def _compile(
    name: str, used: Sequence[Source], objects: Mapping[str, list[Path]], out: Path, cache: Path
) -> Path:
    start = time.monotonic()
    module = out / f"{name}.wasm"
    fresh = out / f".{name}.{os.getpid()}.wasm"
    own = (_HERE / name, _HERE / "common")
    foreign = [source.name for source in used if source.serves(name)]
    arguments = [
        *_FLAGS, *_WARNINGS, *_LINK,
        *(argument for folder in (_SDK, *own) for argument in ("-I", str(folder))),
        *(argument for source in foreign for argument in ("-isystem", str(cache / source))),
        *(str(path) for folder in own for path in sorted(folder.glob("*.c"))),
        *(str(path) for source in foreign for path in objects[source]),
        "-o", str(fresh),
    ]  # fmt: skip
    try:
        _zig(arguments, cache, name)
        fresh.chmod(0o644)
        fresh.replace(module)
    finally:
        fresh.unlink(missing_ok=True)
    size, took = module.stat().st_size >> 10, time.monotonic() - start
    print(f"{name}: {size} KiB, compiled in {took:.1f} s, {module}", file=sys.stderr)
    return module


def _zig(arguments: Sequence[str], cache: Path, name: str) -> None:
    caches = (cache / "zig").resolve()
    environment = {f"ZIG_{kind}_CACHE_DIR": str(caches / kind.lower()) for kind in ("GLOBAL", "LOCAL")}
    command = [sys.executable, "-m", "ziglang", "cc", *arguments]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        raise UsageError(f"{name!r} doesn't compile:\n{ended.stderr.strip()}")


def _notices(cache: Path) -> str:
    """The licences of what is compiled into the guests, those that were built before, too. The C library is
    that of ziglang."""
    texts = [
        f"{source.name} ({source.licence})\n\n{source.notice_in(cache / source.name)}\n"
        for source in sources.known()
        if (cache / source.name).is_dir()
    ]
    spec = find_spec("ziglang")
    assert spec is not None and spec.origin is not None, "checked by build()"
    library = Path(spec.origin).parent / "lib" / "libc"
    for name, licence in (("wasi", "LICENSE-MIT"), ("musl", "COPYRIGHT")):
        text = (library / name / licence).read_text("utf-8", "replace").strip()
        texts.append(f"{name}, parts of the C library (MIT)\n\n{text}\n")
    return ("\n" + "-" * 80 + "\n\n").join(texts)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="hailmesh.sandboxes.guests.build", description="Build the generic guests."
    )
    parser.add_argument("-o", "--out", type=Path, default=built.FOLDER, help="folder for the modules")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help=f"one of {', '.join(built.NAMES)}"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/guests"), help="folder for sources and compiled objects"
    )
    parser.add_argument(
        "--downloads", type=Path, help="folder that keeps downloads (default: beside the cache)"
    )
    arguments = parser.parse_args()
    try:
        downloads = arguments.downloads or arguments.cache.parent / "downloads"
        build(arguments.only, arguments.out, arguments.cache, downloads)
    except MeshError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
