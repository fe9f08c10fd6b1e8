"""The artifact cache: native code of units' modules, compiled once on this machine.

Native code runs with all rights of the process, so it is never taken from anywhere else: a file counts only
in a folder that nobody else can write, and if its content has the digest that its name tells. The name is
KEY-SHA256.cwasm; the key comes from the module's verified digest and all that compilation depends on.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from hailmesh.hail.errors import Denied, ImageError
from hailmesh.sandboxes import engine
from hailmesh.sandboxes.compile import CPU_SECONDS, REFUSED

_SUFFIX = ".cwasm"
_TIMEOUT = 5 * CPU_SECONDS


class ArtifactCache:
    """Thread-safe; several processes may share a folder."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when it is first needed."""
        self._folder = folder
        self._lock = threading.Lock()
        self._compiling: dict[str, threading.Lock] = {}

    async def native(self, digest: str, wasm: int) -> int:
        """As `open`, without holding up the event loop."""
        return await asyncio.to_thread(self.open, digest, wasm)

    def open(self, digest: str, wasm: int) -> int:
        """A descriptor of the native code of the module behind descriptor `wasm`, whose verified digest is
        `digest`; the caller closes it. Compiles it in a child process unless that was done before.
        ImageError says what is wrong with the module; Denied that the folder isn't safe."""
        key = hashlib.sha256(f"{digest} {engine.fingerprint()}".encode()).hexdigest()[:32]
        self._prepare()
        with self._lock:
            turn = self._compiling.setdefault(key, threading.Lock())
        with turn:
            found = self._find(key)
            return self._compile(key, wasm) if found is None else found

    def _prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Denied(
                f"{self._folder} can be written by others, and native code is loaded from there:"
                f" it must belong to user {os.geteuid()} and have mode 0700"
            )

    def _find(self, key: str) -> int | None:
        for path in self._folder.glob(f"{key}-*{_SUFFIX}"):
            expected = path.name.removesuffix(_SUFFIX).partition("-")[2]
            with suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                if _digest(fd) == expected:
                    return fd
                os.close(fd)
                path.unlink(missing_ok=True)
        return None

    def _compile(self, key: str, wasm: int) -> int:
        fd, name = tempfile.mkstemp(prefix=f"{key}.", suffix=".tmp", dir=self._folder)
        try:
            _run_child(wasm, fd)
            os.fsync(fd)
            final = self._folder / f"{key}-{_digest(fd)}{_SUFFIX}"
            Path(name).rename(final)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return os.open(final, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _run_child(wasm: int, target: int) -> None:
    command = [sys.executable, "-m", "hailmesh.sandboxes.compile", str(wasm), str(target)]
    try:
        child = subprocess.run(
            command,
            pass_fds=(wasm, target),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT,
            env={**os.environ, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"the unit's code took more than {_TIMEOUT} s to compile") from None
    if child.returncode == 0:
        return
    lines = child.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    if child.returncode == REFUSED:
        raise ImageError(lines[-1])
    if child.returncode == -signal.SIGXCPU or child.returncode == -signal.SIGKILL:
        raise ImageError(f"the unit's code takes more than {CPU_SECONDS} s of CPU time to compile")
    raise ImageError(f"the compiler ended with {child.returncode} ({lines[-1]}): the code may be too large")


def _digest(fd: int) -> str:
    digest = hashlib.sha256()
    at = 0
    while piece := os.pread(fd, 1 << 20, at):
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()
