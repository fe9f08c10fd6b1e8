"""How much memory a tree of processes takes, from /proc, with what they share counted once."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FIELD = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)
_INTERVAL = 0.05
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes. `total`: private memory, a fair share of files and libraries, and every memfd once, mapped or
    not; `shared`: the memfds of that, such as the arena; `resident`: the plain sum of what each process has
    mapped."""

    total: int = 0
    shared: int = 0
    resident: int = 0


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    pids = [pid]
    for each in pids:
        with suppress(OSError):
            for task in (_PROC / str(each) / "task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


def usage(pid: int) -> Usage:
    """Of the tree below a process, as of now. Processes that end meanwhile don't count."""
    total = resident = 0
    memfds: dict[int, int] = {}
    for each in tree(pid):
        with suppress(OSError):
            fields = {name: int(kb) << 10 for name, kb in _FIELD.findall(_rollup(each))}
            total += fields["Pss"] - fields["Pss_Shmem"]
            resident += fields["Rss"]
            memfds |= _memfds(each)
    shared = sum(memfds.values())
    return Usage(total + shared, shared, resident)


def _rollup(pid: int) -> str:
    return (_PROC / str(pid) / "smaps_rollup").read_text()


def _memfds(pid: int) -> dict[int, int]:
    """Bytes of each memfd that the process has open, by inode."""
    found = {}
    for link in (_PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()).startswith("/memfd:"):
                status = link.stat()
                found[status.st_ino] = status.st_blocks * _BLOCK
    return found


class Peak:
    """The highest values seen."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self.highest = Usage()

    def look(self) -> None:
        now = usage(self._pid)
        most = self.highest
        self.highest = Usage(
            max(most.total, now.total), max(most.shared, now.shared), max(most.resident, now.resident)
        )

    def watch(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self.look()

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def watching(pid: int) -> Iterator[Peak]:
    """Looks at a tree of processes over and over, and once more at the end."""
    peak = Peak(pid)
    watcher = threading.Thread(target=peak.watch, daemon=True)
    watcher.start()
    try:
        yield peak
        peak.look()
    finally:
        peak.stop()
        watcher.join()
