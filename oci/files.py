"""Files that are there whole or not at all, whenever the power goes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def sync_folder(folder: Path) -> None:
    """Makes renames into `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def temporary(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file to write in `folder`; it is removed unless it was renamed away. Closed and durable before that
    by `settle`."""
    fd, name = tempfile.mkstemp(dir=folder)
    path = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def settle(file: BinaryIO, path: Path, target: Path, mode: int) -> None:
    """Writes out `file`, then gives it its name for good; a file of that name is replaced."""
    file.flush()
    os.fchmod(file.fileno(), mode)
    os.fsync(file.fileno())
    path.replace(target)
    sync_folder(target.parent)


@contextmanager
def locked(path: Path, *, exclusive: bool) -> Iterator[None]:
    """Holds an advisory lock between processes and threads; waits for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)
