"""What can be wrong with a machine, one small check each; `doctor` shows the findings."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from hailmesh.hail.errors import MeshError
from hailmesh.mesh.config import Config, parse_size
from hailmesh.mesh.ledger import available, total
from hailmesh.mesh.state import TOKEN_FILE

MEBIBYTE = 1 << 20
ROOM_WANTED = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """`status` is ok, warning or failed; failed keeps the node from serving."""

    check: str
    status: str
    found: str
    advice: str = ""

    def describe(self) -> dict[str, str]:
        return asdict(self)


def diagnose(config: Config) -> list[Finding]:
    """All findings, in the order a person would want to fix them."""
    return [check(config) for check in _CHECKS]


def _platform(_: Config) -> Finding:
    found = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return Finding("platform", "failed", found, "hailmesh runs on Linux, x86-64 and aarch64")
    return Finding("platform", "ok", found)


def _sandbox(_: Config) -> Finding:
    try:
        return Finding("sandbox engine", "ok", f"wasmtime {version('wasmtime')}")
    except PackageNotFoundError:
        return Finding("sandbox engine", "failed", "wasmtime is missing", "pip install wasmtime")


def _onnxruntime(_: Config) -> Finding:
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(installed) == 2:
        return Finding(
            "graph executor",
            "failed",
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files",
            "pip uninstall onnxruntime onnxruntime-gpu, then install hailmesh[cpu] or hailmesh[gpu]",
        )
    if importlib.util.find_spec("onnxruntime") is None:
        return Finding(
            "graph executor",
            "failed",
            "onnxruntime is missing",
            "pip install 'hailmesh[cpu]' or 'hailmesh[gpu]'",
        )
    name = installed[0] if installed else "onnxruntime"
    return Finding("graph executor", "ok", f"{name} {version(name) if installed else '(system)'}")


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _device(_: Config) -> Finding:
    from hailmesh.hail.arena import GRANULE, Arena
    from hailmesh.hail.device import choose

    arena = Arena.create(GRANULE)
    try:
        choice = choose(arena)
        info = choice.device.probe()
        choice.device.close()
    except MeshError as error:
        return Finding("device", "failed", str(error), "a device adapter must work: see hail/devices")
    finally:
        arena.close()
    found = f"{choice.chosen}: {info.model}, {info.compute_units} units, {info.copy_bandwidth / 1e9:.1f} GB/s"
    return Finding("device", "warning" if choice.fallback else "ok", found, choice.reason)


def _memory(config: Config) -> Finding:
    wanted = parse_size(config.arena, of=total())
    found = f"{available() // MEBIBYTE} MiB available, the arena takes up to {wanted // MEBIBYTE} MiB"
    if wanted > total():
        return Finding("memory", "failed", found, "set a smaller arena")
    if wanted > available():
        return Finding("memory", "warning", found, "stop other programs, or set a smaller arena")
    return Finding("memory", "ok", found)


def _files(_: Config) -> Finding:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1024:
        return Finding("open files", "warning", f"limit {soft}", "raise it to 1024 or more: ulimit -n 4096")
    return Finding("open files", "ok", f"limit {soft}")


def _disk(config: Config) -> Finding:
    folder = config.state
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free // MEBIBYTE} MiB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Finding("state folder", "failed", f"{folder} can't be written", "set another with --state")
    if free < ROOM_WANTED:
        return Finding(
            "state folder", "warning", found, "images need room: 'hailmesh oci gc' or a larger disk"
        )
    return Finding("state folder", "ok", found)


def _token(config: Config) -> Finding:
    path = config.state / TOKEN_FILE
    if not path.exists():
        return Finding("admin token", "ok", "made at the first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding("admin token", "warning", f"mode {mode:o}: others can read it", f"chmod 600 {path}")
    return Finding("admin token", "ok", f"mode {mode:o}")


def _guests(_: Config) -> Finding:
    from hailmesh.sandboxes.guests.built import NAMES, path

    missing = [name for name in NAMES if not path(name).exists()]
    if missing:
        return Finding(
            "generic guests",
            "warning",
            f"{', '.join(missing)} not built",
            "python -m hailmesh.sandboxes.guests.build; plugged images don't need them",
        )
    return Finding("generic guests", "ok", ", ".join(NAMES))


def _store(config: Config) -> Finding:
    from hailmesh.oci.store import Store

    try:
        images = Store(config.store).ls()
    except MeshError as error:
        return Finding(
            "image store", "failed", str(error), f"move {config.store} away and build or pull again"
        )
    return Finding("image store", "ok", f"{len(images)} tags in {config.store}")


def _port(config: Config) -> Finding:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            return Finding(
                "port",
                "warning",
                f"{config.host}:{config.port}: {error.strerror}",
                "fine if that is this node; else choose another with --port",
            )
    return Finding("port", "ok", f"{config.host}:{config.port} is free")


_CHECKS: tuple[Callable[[Config], Finding], ...] = (
    _platform,
    _sandbox,
    _onnxruntime,
    _device,
    _memory,
    _files,
    _disk,
    _token,
    _guests,
    _store,
    _port,
)
