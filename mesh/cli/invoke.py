"""`invoke`: one request, any modalities, through the native API."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from hailmesh.hail.errors import UsageError
from hailmesh.mesh.cli.shared import ConfigFile, Json, client, print_json


def register(app: typer.Typer) -> None:
    app.command("invoke")(invoke)


def invoke(
    image: Annotated[Path | None, typer.Option(help="A JPEG, PNG or BMP file.")] = None,
    text: Annotated[str | None, typer.Option(help="A prompt.")] = None,
    speech: Annotated[Path | None, typer.Option(help="A WAV or FLAC file.")] = None,
    unit: Annotated[str | None, typer.Option(help="A unit's name; by default the modality decides.")] = None,
    params: Annotated[str | None, typer.Option(help="The unit's options, a JSON object.")] = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Ask one question in one, two or three modalities at once."""
    given = {"image": image, "text": text, "speech": speech}
    fields: dict[str, str | Path] = {name: value for name, value in given.items() if value is not None}
    if not fields:
        raise UsageError("nothing to ask: give --image FILE, --text PROMPT, --speech FILE, or several")
    modalities = ",".join(fields)
    if params is not None:
        fields["params"] = _checked(params)
    answer = client(config).upload("/v1/invoke", fields, modalities=modalities, unit=unit)
    if json:
        print_json(answer)
        return
    for modality, result in answer["results"].items():
        typer.echo(f"{modality:<7} {summary(result)}")


def _checked(params: str) -> str:
    try:
        value = jsonlib.loads(params)
    except ValueError as error:
        raise UsageError(f"--params is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--params: expected a JSON object like {"top_k": 3}')
    return params


def summary(result: dict[str, Any]) -> str:
    """One line for a person: what the unit said, and where the time went."""
    if "error" in result:
        return f"failed: {result['error']['message']}"
    if "labels" in result:
        said = ", ".join(f"{entry['label']} {entry['score']:.2f}" for entry in result["labels"][:3])
    elif "objects" in result:
        said = ", ".join(f"{entry['label']} {entry['score']:.2f}" for entry in result["objects"]) or "nothing"
    else:
        said = str(result.get("text", {k: v for k, v in result.items() if k not in _ENVELOPE})).strip()
    return f"{said}  [{timing_line(result.get('timings', {}))}]"


_ENVELOPE = ("unit", "version", "digest", "timings")


def timing_line(timings: dict[str, float]) -> str:
    """`41.2 ms: queue 0.1, sandbox 6.0, bridge 0.9, kernel 33.5`."""
    stages = ", ".join(
        f"{name} {timings[name]:.1f}" for name in ("queue", "sandbox", "bridge", "kernel") if name in timings
    )
    return f"{timings.get('total', 0.0):.1f} ms: {stages}"
