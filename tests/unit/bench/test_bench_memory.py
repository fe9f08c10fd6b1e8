"""What the memory benchmark counts, on processes of which we know what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench.support.memory import tree, usage, watching

MIB = 1 << 20
CHILD = "import sys; block = bytearray({nbytes}); print('ready', flush=True); sys.stdin.read()"
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=sys.stdin, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
child.stdout.close()
"""


@contextmanager
def process(code: str, *fds: int) -> Iterator[tuple[int, str]]:
    """(pid, its first line) of a Python process that lives until its standard input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=fds
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        yield running.pid, running.stdout.readline()
        running.stdin.close()


@pytest.fixture
def memfd() -> Iterator[int]:
    fd = os.memfd_create("block")
    os.write(fd, b"x" * (8 * MIB))
    yield fd
    os.close(fd)


def test_private_memory_counts_in_full():
    with process(CHILD.format(nbytes=64 * MIB)) as (pid, _):
        large = usage(pid)
    with process(CHILD.format(nbytes=16)) as (pid, _):
        small = usage(pid)
    assert large.total - small.total == pytest.approx(64 * MIB, rel=0.1)


def test_descendants_count():
    with process(PARENT.format(child=CHILD.format(nbytes=64 * MIB))) as (pid, line):
        assert tree(pid) == [pid, int(line)]
        assert usage(pid).total > 64 * MIB


def test_a_memfd_counts_once_and_whole_though_nobody_maps_it(memfd: int):
    child = CHILD.format(nbytes=16)
    parent = PARENT.format(child=child).replace("stdout=subprocess", f"pass_fds=[{memfd}], stdout=subprocess")
    with process(parent, memfd) as (pid, _):
        found = usage(pid)
    with process(PARENT.format(child=child)) as (pid, _):
        without = usage(pid)
    assert (found.shared, without.shared) == (8 * MIB, 0)
    assert found.total - without.total == pytest.approx(8 * MIB, rel=0.1)


def test_watching_keeps_the_highest_value(memfd: int):
    with process(CHILD.format(nbytes=16), memfd) as (pid, _), watching(pid) as peak:
        peak.look()
        before = peak.highest.shared
        os.ftruncate(memfd, MIB)
    assert (before, peak.highest.shared) == (8 * MIB, 8 * MIB)
