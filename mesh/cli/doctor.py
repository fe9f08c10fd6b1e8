"""`doctor`: looks at the machine and says what is wrong with it, and what to do."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from hailmesh.mesh.cli.shared import ConfigFile, Json, print_json, settings

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[red]failed[/]"}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(config: ConfigFile = None, json: Json = False) -> None:
    """Check the machine; exit 1 if something keeps the node from serving."""
    from hailmesh.mesh.diagnosis import diagnose

    findings = diagnose(settings(config))
    failed = any(finding.status == "failed" for finding in findings)
    if json:
        print_json({"healthy": not failed, "findings": [finding.describe() for finding in findings]})
    else:
        table = Table(box=None, pad_edge=False)
        for column in ("CHECK", "", "FOUND", "WHAT TO DO"):
            table.add_column(column)
        for finding in findings:
            table.add_row(finding.check, _MARKS[finding.status], finding.found, finding.advice)
        Console().print(table)
    raise typer.Exit(1 if failed else 0)
