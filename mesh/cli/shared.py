"""What the commands have in common: options, the client, JSON output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from hailmesh.mesh import config as configuration
from hailmesh.mesh.cli.client import Client
from hailmesh.mesh.config import Config

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="HAILMESH_CONFIG", help="TOML file; HAILMESH_* variables override."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings(path: Path | None, **overrides: Any) -> Config:
    return configuration.load(path, **overrides)


def client(path: Path | None) -> Client:
    """The running node of this configuration."""
    return Client.of(settings(path))


def print_json(value: Any) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def human_size(nbytes: float) -> str:
    """`12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError
