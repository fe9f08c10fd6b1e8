"""What the figures were taken on, and with what."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers import llama_cpp, whisper

_PACKAGES = ("hailmesh", "wasmtime", "onnxruntime", "numpy", "fastapi", "uvicorn", "pillow")
_PEER_VERSIONS = """\
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in ("faster-whisper", "ctranslate2")), sep="\\n")
"""


def machine() -> dict[str, str]:
    """CPU, cores, memory, system, and how busy it was before."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return {
        "CPU": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"Linux {platform.release()} {platform.machine()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu() -> str:
    """The model's name; aarch64 kernels don't tell it in /proc/cpuinfo, but a device tree may."""
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    tree = Path("/proc/device-tree/model")
    return tree.read_text().rstrip("\0") if tree.exists() else "unknown"


def versions() -> dict[str, str]:
    """Of what was measured, ours and the peers', as far as installed."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if llama_cpp.FOLDER.exists():
        found["llama.cpp"] = llama_cpp.REQUIREMENT
    return found | _peer_versions()


def _peer_versions() -> dict[str, str]:
    python = whisper.VENV / "bin" / "python"
    if not python.exists():
        return {}
    done = subprocess.run([str(python), "-c", _PEER_VERSIONS], capture_output=True, text=True, check=False)
    return dict(line.split() for line in done.stdout.splitlines())
