"""`oci build`, `ls`, `inspect`, `gc`: modality images in the local store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hailmesh.hail.errors import UsageError
from hailmesh.mesh.cli.shared import ConfigFile, Json, human_size, print_json, settings
from hailmesh.mesh.state import ActiveUnits
from hailmesh.oci.store import Store

app = typer.Typer(no_args_is_help=True)
UNIT_TOML = "unit.toml"


@app.command("build")
def build(
    path: Annotated[Path, typer.Argument(help="A unit.toml, or the folder it is in.")],
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Make a unit's image from its unit.toml and put it into the store."""
    from hailmesh.oci.build import build as build_image
    from hailmesh.sandboxes.guests import built

    unit_toml = path / UNIT_TOML if path.is_dir() else path
    if not unit_toml.exists():
        raise UsageError(f"no {UNIT_TOML} at {path}: give the folder of a unit, or its {UNIT_TOML}")
    store = Store(settings(config).store)
    image = build_image(unit_toml, store, guests=built.find)
    names = store.inspect(image.digest)["names"]
    if json:
        print_json({"digest": image.digest, "names": names})
        return
    typer.echo(f"{names[0]} {image.digest}")


@app.command("ls")
def ls(config: ConfigFile = None, json: Json = False) -> None:
    """List the images of the store."""
    images = Store(settings(config).store).ls()
    if json:
        print_json([asdict(image) for image in images])
        return
    if not images:
        typer.echo("the store is empty: 'hailmesh oci build FOLDER' makes an image from a unit.toml")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("IMAGE", "DIGEST", "SIZE", "DESCRIPTION"):
        table.add_column(column)
    for image in images:
        description = image.annotations.get("org.opencontainers.image.description", "")
        digest = image.digest.removeprefix("sha256:")[:12]
        table.add_row(image.reference or "(no name)", digest, human_size(image.size), description)
    Console().print(table)


@app.command("inspect")
def inspect(
    ref: Annotated[str, typer.Argument(help="NAME, NAME:TAG, or a digest.")], config: ConfigFile = None
) -> None:
    """Show all that an image says of itself, as JSON."""
    print_json(Store(settings(config).store).inspect(ref))


@app.command("gc")
def gc(config: ConfigFile = None) -> None:
    """Remove what no named image and no active unit needs."""
    chosen = settings(config)
    active = [digest for _, digest in ActiveUnits(chosen.state).items()]
    removed = Store(chosen.store).gc(keep=active)
    typer.echo(f"removed {len(removed)} blobs")
