"""The tables of a unit description; see unit.py for the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hailmesh.hail.errors import UsageError
from hailmesh.oci.fields import Table

CLASSES = ("realtime", "interactive", "batch")
LANES = ("urgent", "best-effort")
KINDS = ("graph", "sequence")

_GRAPH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_WASM_PAGE, _WASM_MOST = 64 << 10, 4 << 30
_DEFAULT_MEMORY = 64 << 20
_DEADLINES = {"realtime": 33, "interactive": 60_000, "batch": 600_000}
"""Milliseconds a request may take in all, by class, unless the unit says otherwise."""


@dataclass(frozen=True, slots=True)
class Qos:
    """The promise: class, milliseconds in all for a request, and the weight of missing it."""

    qos_class: str = "interactive"
    deadline_ms: int = _DEADLINES["interactive"]
    penalty: float = 1.0

    @classmethod
    def of(cls, table: Table) -> Qos:
        """UsageError names the key that is wrong."""
        qos_class = table.choice("class", CLASSES, "interactive")
        deadline = table.integer("deadline-ms", _DEADLINES[qos_class], least=1, most=24 * 3600 * 1000)
        qos = cls(qos_class, deadline, table.number("penalty", 1.0, most=1000))
        table.done()
        return qos

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        return {"class": self.qos_class, "deadline-ms": self.deadline_ms, "penalty": self.penalty}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of arena for all slots together, and of linear memory for one sandbox at most."""

    arena: int = _DEFAULT_MEMORY
    guest: int = _DEFAULT_MEMORY

    @classmethod
    def of(cls, table: Table) -> Memory:
        """UsageError names the key that is wrong."""
        arena = table.size("arena", _DEFAULT_MEMORY, least=_WASM_PAGE)
        memory = cls(arena, table.size("guest", _DEFAULT_MEMORY, least=_WASM_PAGE, most=_WASM_MOST))
        table.done()
        return memory

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        return {"arena": self.arena, "guest": self.guest}


@dataclass(frozen=True, slots=True)
class Run:
    """Sandboxes at a time, threads of a graph (0: as many as its lane has cores), and the lane it runs on."""

    slots: int = 1
    threads: int = 0
    lane: str = "best-effort"

    @classmethod
    def of(cls, table: Table) -> Run:
        """UsageError names the key that is wrong."""
        slots = table.integer("slots", 1, least=1, most=1024)
        run = cls(slots, table.integer("threads", 0, most=256), table.choice("lane", LANES, "best-effort"))
        table.done()
        return run

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        return {"slots": self.slots, "threads": self.threads, "lane": self.lane}


@dataclass(frozen=True, slots=True)
class Graph:
    """A model file. A sequence has a tokenizer, a context in tokens, and slots for keys and values."""

    file: str
    kind: str = "graph"
    tokenizer: str = ""
    context: int = 0
    slots: int = 1

    @classmethod
    def of(cls, name: str, table: Table) -> Graph:
        """UsageError names the key that is wrong."""
        if not _GRAPH.fullmatch(name):
            raise UsageError(f"{table.path}: a graph's name has letters, digits, '_', '-' and '.' only")
        file, kind = path_of(table, "file"), table.choice("kind", KINDS, "graph")
        graph = cls(file, kind)
        if kind == "sequence":
            context = table.integer("context", least=1, most=1 << 24)
            slots = table.integer("slots", 1, least=1, most=1024)
            graph = cls(file, kind, path_of(table, "tokenizer"), context, slots)
        table.done()
        return graph

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        document: dict[str, Any] = {"file": self.file, "kind": self.kind}
        if self.kind == "sequence":
            document.update(tokenizer=self.tokenizer, context=self.context, slots=self.slots)
        return document


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file of the image comes from, and its licence as an SPDX expression."""

    package: str
    licence: str

    @classmethod
    def of(cls, _: str, table: Table) -> Source:
        """UsageError names the key that is wrong."""
        source = cls(table.text("package"), table.text("licence"))
        table.done()
        return source

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        return {"package": self.package, "licence": self.licence}


def path_of(table: Table, key: str, default: Any = None) -> str:
    """The name of a file beside unit.toml or below it."""
    name = table.text(key) if default is None else table.text(key, default)
    return _plain(table, key, name) if name or default is None else name


def paths_of(table: Table, key: str) -> tuple[str, ...]:
    """A list of such names, empty if it is missing."""
    return tuple(_plain(table, key, name) for name in table.texts(key, ()))


def _plain(table: Table, key: str, name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == "." or "\\" in name:
        raise table.error(key, f"expected the plain path of a file below unit.toml's folder, found {name!r}")
    return name
