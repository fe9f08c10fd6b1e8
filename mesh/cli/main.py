"""`hailmesh`: the command line. Commands live in files of their own; this one gathers them.

Exit codes: 0 done, 1 failed, 2 usage.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hailmesh import __version__
from hailmesh.hail.errors import MeshError
from hailmesh.mesh.cli import converse, doctor, images, invoke, units, up
from hailmesh.mesh.errors import exit_status

app = typer.Typer(
    name="hailmesh",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="An edge inference mesh: vision, language and speech units side by side, sandboxed, on one box.",
)
app.add_typer(images.app, name="oci", help="Modality images in the local store.")
for module in (up, units, invoke, converse, doctor):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hailmesh {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    del version


def main() -> None:
    """The entry point: errors become one line on standard error and an exit code."""
    try:
        app()
    except MeshError as error:
        typer.secho(f"hailmesh: {error}", err=True, fg="red")
        sys.exit(exit_status(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
