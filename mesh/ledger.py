"""The ledger: one account of the box's memory, since no cgroup sees all of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hailmesh.hail.arena import Arena, ArenaReport

if TYPE_CHECKING:
    from hailmesh.mesh.units import Units


class Ledger:
    """Arena, measured memory of every process, and what the box has left. Bytes throughout."""

    def __init__(self, arena: Arena, units: Units) -> None:
        self._arena = arena
        self._units = units

    def describe(self) -> dict[str, Any]:
        versions = self._units.versions()
        workers = {
            f"{version.name}@{version.version}": resident(version.worker.pid)
            for version in versions
            if version.describe()["pid"] is not None
        }
        return {
            "memory": {
                "available": available(),
                "node": resident("self"),
                "workers": workers,
                "arena": _plain(self._arena.report()),
            }
        }


def resident(pid: int | str) -> dict[str, int]:
    """`private` and `shared` resident bytes of a process: shared is mostly the arena, counted by everyone
    who touched it. Zeros once the process is gone."""
    fields = {"RssAnon": 0, "RssFile": 0, "RssShmem": 0}
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = int(value.split()[0]) * 1024
    return {"private": fields["RssAnon"] + fields["RssFile"], "shared": fields["RssShmem"]}


def _plain(report: ArenaReport) -> dict[str, Any]:
    """The report as JSON has it: stages by name."""
    plain = asdict(report)
    plain["stages"] = {stage.value: usage for stage, usage in plain["stages"].items()}
    return plain


def available() -> int:
    """What the whole box could still give out (MemAvailable)."""
    return _meminfo("MemAvailable")


def total() -> int:
    """All the memory of the box (MemTotal)."""
    return _meminfo("MemTotal")


def _meminfo(field: str) -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0
