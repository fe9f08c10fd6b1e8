"""`chat` and `transcribe`: a conversation in the terminal, and what a recording says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hailmesh.hail.errors import MeshError
from hailmesh.mesh.cli.client import Client
from hailmesh.mesh.cli.shared import ConfigFile, Json, client, print_json


def register(app: typer.Typer) -> None:
    app.command("chat")(chat)
    app.command("transcribe")(transcribe)


def chat(
    prompt: Annotated[str | None, typer.Argument(help="One question; without it, a conversation.")] = None,
    unit: Annotated[str, typer.Option(help="The language unit.")] = "llm",
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    config: ConfigFile = None,
) -> None:
    """Talk to a language unit; the answer streams. Ctrl-D ends the conversation."""
    node = client(config)
    messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    options: dict[str, Any] = {"model": unit, "temperature": temperature, "max_tokens": max_tokens}
    if prompt is not None:
        _turn(node, [*messages, {"role": "user", "content": prompt}], options)
        return
    console = Console()
    while True:
        try:
            line = console.input("[bold]>[/] ")
        except EOFError:
            typer.echo()
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        try:
            answer = _turn(node, messages, options)
        except MeshError as error:
            messages.pop()
            typer.secho(str(error), err=True, fg="red")
            continue
        messages.append({"role": "assistant", "content": answer})


def _turn(node: Client, messages: list[dict[str, str]], options: dict[str, Any]) -> str:
    """Streams one answer to the terminal and returns it."""
    body = {key: value for key, value in options.items() if value is not None}
    said = []
    for chunk in node.stream("/v1/chat/completions", body={**body, "messages": messages, "stream": True}):
        for choice in chunk.get("choices", ()):
            piece = choice.get("delta", {}).get("content") or ""
            said.append(piece)
            typer.echo(piece, nl=False)
    typer.echo()
    return "".join(said)


def transcribe(
    file: Annotated[Path, typer.Argument(help="A WAV or FLAC file.")],
    unit: Annotated[str, typer.Option(help="The speech unit.")] = "asr",
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Write down what a recording says."""
    node = client(config)
    answer = node.upload("/v1/audio/transcriptions", {"file": file, "model": unit, "response_format": "json"})
    if json:
        print_json(answer)
        return
    typer.echo(answer["text"].strip())
