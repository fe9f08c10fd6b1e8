"""Golden cases of a unit: an input, and what the answer must say. See mesh/selftest.py for how it is judged.

[selftest.NAME]  file (beside unit.toml) or text, type, params, expect = [{path, equals | contains | …}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hailmesh.hail.errors import UsageError
from hailmesh.oci.fields import Table
from hailmesh.oci.sections import path_of

PLAIN_TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The input is `file`, or, if that is empty, `text`; `type` is its media type."""

    file: str
    text: str
    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    expect: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, _: str, table: Table) -> SelfTest:
        """UsageError names the key that is wrong."""
        file, text = path_of(table, "file", ""), table.text("text", "")
        if bool(file) == bool(text):
            raise UsageError(f"{table.path}: expected either file or text as the input")
        case = cls(
            file,
            text,
            table.text("type", PLAIN_TEXT) if text else table.text("type"),
            table.mapping("params", {}),
            tuple(table.tables("expect")),
        )
        if not case.expect:
            raise table.error("expect", "a case that expects nothing shows nothing: give at least one")
        table.done()
        return case

    def document(self) -> dict[str, Any]:
        """For unit.json."""
        source = {"file": self.file} if self.file else {"text": self.text}
        return {**source, "type": self.type, "params": dict(self.params), "expect": list(self.expect)}
