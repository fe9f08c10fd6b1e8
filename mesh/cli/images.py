"""`oci build`, `oci ls`, `oci inspect`: modality images in the local store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hailmesh.mesh.cli.shared import ConfigFile, Json, human_size, print_json, settings

app = typer.Typer(no_args_is_help=True)
