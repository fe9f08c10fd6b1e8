"""`ps`, `plug`, `unplug`, `logs`: the units of the running node."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hailmesh.mesh.cli.shared import ConfigFile, Json, client, print_json

_COLOURS = {"active": "green", "failed": "red", "draining": "yellow", "retired": "dim"}


def register(app: typer.Typer) -> None:
    app.command("ps")(ps)
    app.command("plug")(plug)
    app.command("unplug")(unplug)
    app.command("logs")(logs)


def ps(config: ConfigFile = None, json: Json = False) -> None:
    """Show the units and their states."""
    units = client(config).call("GET", "/v1/units")["units"]
    if json:
        print_json(units)
        return
    if not units:
        typer.echo(
            "no units are plugged: 'hailmesh plug NAME' serves an image of the store ('hailmesh oci ls')"
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("UNIT", "VERSION", "DIGEST", "MODALITY", "STATE", "SLOTS", "SINCE", "NOTE"):
        table.add_column(column)
    for unit in units:
        state = unit["state"]
        table.add_row(
            unit["name"],
            unit["version"],
            unit["digest"].removeprefix("sha256:")[:12],
            unit["modality"],
            f"[{_COLOURS.get(state, 'cyan')}]{state}[/]",
            str(unit["slots"]),
            time.strftime("%H:%M:%S", time.localtime(unit["since"])),
            _note(unit),
        )
    Console().print(table)


def _note(unit: dict[str, Any]) -> str:
    if unit["reason"]:
        return str(unit["reason"])
    return f"restarted {unit['restarts']}×" if unit["restarts"] else ""


def plug(
    ref: Annotated[str, typer.Argument(help="NAME, NAME:TAG or NAME@sha256:… of the local store.")],
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Serve an image: loads it beside the running version, then moves the traffic over."""
    node = client(config)
    with Console(stderr=True).status(f"plugging {ref}"):
        unit = node.call("POST", "/v1/units", body={"ref": ref}, manage=True)
    if json:
        print_json(unit)
        return
    typer.echo(f"{unit['name']} {unit['version']} is {unit['state']} ({unit['digest'][:19]})")


def unplug(
    name: Annotated[str, typer.Argument(help="The unit's name.")],
    drain: Annotated[
        float | None,
        typer.Option(help="Seconds that running requests get to finish; the node's, if not given."),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Stop serving a unit, once its running requests have finished."""
    client(config).call("DELETE", f"/v1/units/{name}", manage=True, drain=drain)
    typer.echo(f"{name} is unplugged")


def logs(
    name: Annotated[str, typer.Argument(help="The unit's name.")],
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show the last lines that a unit logged."""
    lines = client(config).call("GET", f"/v1/units/{name}/logs", manage=True)["lines"]
    if json:
        print_json(lines)
        return
    for line in lines:
        moment = time.strftime("%H:%M:%S", time.localtime(line["time"]))
        typer.echo(f"{moment} {line['level']:<7} {line['request']} {line['line']}")
