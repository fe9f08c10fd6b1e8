"""What a unit is: `unit.toml` for people, `unit.json` inside the image, one set of dataclasses for both.

    [unit]     name, version, modality, guest, description, lifetime, licences, licence-files, config-file
    [qos]      class, deadline-ms, penalty
    [memory]   arena, guest
    [grants]   kernels
    [run]      slots, threads, lane
    [graphs.NAME]   file, kind, tokenizer, context, slots
    [sources.FILE]  package, licence
    [selftest.NAME] file or text, type, params, expect
    [config]   the guest's own, taken as it is

`guest` is the name of a generic guest, or the path of a .wasm. `sources` records for each file of the image
(and `module` for the code) what it was made from, and under which licence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hailmesh.hail.errors import UsageError
from hailmesh.oci.fields import Table
from hailmesh.oci.index import decode
from hailmesh.oci.sections import Graph, Memory, Qos, Run, Source, path_of, paths_of
from hailmesh.oci.selftest import SelfTest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GENERIC_GUESTS = ("vision", "llm", "asr")
LIFETIMES = ("request", "session")
MODULE = "module"

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_MODALITY = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SEMVER = re.compile(
    r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"
    r"(?:-(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)  # semver.org, version 2.0.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A whole unit description."""

    name: str
    version: str
    modality: str
    guest: str
    description: str = ""
    lifetime: str = "request"
    licences: tuple[str, ...] = ()
    licence_files: tuple[str, ...] = ()
    config_file: str = ""
    qos: Qos = field(default_factory=Qos)
    memory: Memory = field(default_factory=Memory)
    run: Run = field(default_factory=Run)
    kernels: tuple[str, ...] = ()
    graphs: Mapping[str, Graph] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    selftests: Mapping[str, SelfTest] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Unit:
        """From a parsed unit.toml or unit.json. UsageError names the key that is wrong."""
        root = Table(document, "")
        head = root.table("unit")
        unit = cls(
            name=head.text("name", pattern=_NAME, like="lower-case letters, digits, '.', '_' and '-'"),
            version=head.text("version", pattern=_SEMVER, like="a semantic version such as 1.0.0"),
            modality=head.text("modality", pattern=_MODALITY, like="a word such as image, text or speech"),
            guest=head.text(
                "guest", pattern=re.compile(r".+"), like="a generic guest or the path of a .wasm"
            ),
            description=head.text("description", ""),
            lifetime=head.choice("lifetime", LIFETIMES, "request"),
            licences=head.texts("licences", ()),
            licence_files=paths_of(head, "licence-files"),
            config_file=path_of(head, "config-file", ""),
            qos=Qos.of(root.table("qos", {})),
            memory=Memory.of(root.table("memory", {})),
            run=Run.of(root.table("run", {})),
            kernels=_grants(root.table("grants", {})),
            graphs=root.each("graphs", {}, read=Graph.of),
            sources=root.each("sources", {}, read=Source.of),
            selftests=root.each("selftest", {}, read=SelfTest.of),
            config=root.mapping("config", {}),
        )
        head.done()
        root.done()
        return unit

    @classmethod
    def load(cls, path: Path) -> Unit:
        """Reads a unit.toml, with its config-file merged in. UsageError names the file and the key."""
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: not valid TOML: {error}") from error
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; give the path of a unit.toml") from error
        try:
            return cls.of(document)._checked()._merged(path.parent)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error

    def files(self) -> tuple[str, ...]:
        """Graphs and tokenizers, each once, in the order in which they are named."""
        named = [file for graph in self.graphs.values() for file in (graph.file, graph.tokenizer) if file]
        return tuple(dict.fromkeys(named))

    def golden_files(self) -> tuple[str, ...]:
        """The input files of the self-test, each once."""
        return tuple(dict.fromkeys(case.file for case in self.selftests.values() if case.file))

    def document(self) -> dict[str, Any]:
        """unit.json: what a node needs to know; what only the build needs is left out."""
        return {
            "unit": {
                "name": self.name, "version": self.version, "modality": self.modality, "guest": self.guest,
                "description": self.description, "lifetime": self.lifetime, "licences": list(self.licences),
            },
            "qos": self.qos.document(),
            "memory": self.memory.document(),
            "run": self.run.document(),
            "grants": {"kernels": list(self.kernels)},
            "graphs": {name: graph.document() for name, graph in self.graphs.items()},
            "sources": {file: source.document() for file, source in self.sources.items()},
            "selftest": {name: case.document() for name, case in self.selftests.items()},
            "config": dict(self.config),
        }  # fmt: skip

    def _checked(self) -> Unit:
        """UsageError if `sources` names a file that the unit doesn't have."""
        known = (*self.files(), *self.golden_files(), MODULE, self.config_file)
        for file in self.sources:
            if file not in known:
                raise UsageError(
                    f"sources.{file}: no such file in this unit; it has {', '.join(filter(None, known))}"
                )
        return self

    def _merged(self, folder: Path) -> Unit:
        """With the keys of the configuration file beside those of [config]."""
        if not self.config_file:
            return self
        path = folder / self.config_file
        try:
            more = decode(path.read_bytes(), str(path))
        except OSError as error:
            raise UsageError(f"unit.config-file: {path}: {error.strerror}") from error
        twice = sorted(set(more) & set(self.config))
        if twice:
            raise UsageError(f"config.{twice[0]}: stands in {self.config_file} too; keep one of them")
        return replace(self, config={**self.config, **more})


def _grants(table: Table) -> tuple[str, ...]:
    kernels = table.texts("kernels", ())
    table.done()
    return kernels
