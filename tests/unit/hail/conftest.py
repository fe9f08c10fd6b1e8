"""An arena, and a second process to share it with."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from hailmesh.hail.arena import Arena


@pytest.fixture
def arena() -> Iterator[Arena]:
    """16 MiB; every lease must be back when the test ends."""
    arena = Arena.create(16 << 20)
    yield arena
    gc.collect()
    assert arena.count == 0, "the test left leases behind"
    arena.close()


class Other:
    """A second Python process that runs a script; the two talk in lines."""

    def __init__(self, script: str, *args: object, fds: tuple[int, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, args)],
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def hear(self) -> str:
        """Its next line; fails if it ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the other process ended with status {self._process.wait()}"
        return line.strip()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Its exit status."""
        with self._process:
            if self._process.stdin is not None:
                self._process.stdin.close()
            return self._process.wait()


Start = Callable[..., Other]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a second process: start(script, *args, fds=(…)); it must end well."""
    running: list[Other] = []

    def begin(script: str, *args: object, fds: tuple[int, ...] = ()) -> Other:
        running.append(Other(script, *args, fds=fds))
        return running[-1]

    yield begin
    for other in running:
        assert other.end() in (0, -9)
