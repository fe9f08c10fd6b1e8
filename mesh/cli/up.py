"""`up`: start a node here, and stay."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hailmesh.mesh.cli.client import Client
from hailmesh.mesh.cli.invoke import summary
from hailmesh.mesh.cli.shared import ConfigFile, Json, print_json, settings
from hailmesh.mesh.config import Config

if TYPE_CHECKING:
    from hailmesh.mesh.node import Node
    from hailmesh.mesh.reference import Outcome

REFERENCE_UNITS = ("vision", "llm", "asr")


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder of the store, caches and secrets.")] = None,
    plug: Annotated[
        list[str] | None, typer.Option(help="Image to plug at the start; may be repeated.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Plug the reference units and show their three answers.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="As --demo, on a free port; exit 0 if all three answers are right, else 1."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Start the node: it serves the units that were plugged before, until Ctrl-C."""
    # Imported here: the other commands only talk to a node, and start faster without one.
    from hailmesh.mesh import serve
    from hailmesh.mesh.reference import ask_all

    began = time.monotonic()
    chosen = settings(config, host=host, port=0 if check and port is None else port, state=state)
    refs = [*(plug or ()), *(REFERENCE_UNITS if demo or check else ())]

    async def started(node: Node, url: str) -> int | None:
        await _plug_missing(node, refs)
        if not json:
            _announce(node, url, time.monotonic() - began)
        if not (demo or check):
            return None
        outcomes = await asyncio.to_thread(
            ask_all, _client(chosen, url), node.reference_cases(REFERENCE_UNITS)
        )
        _report(outcomes, json)
        if check:
            return 0 if outcomes and all(outcome.verdict.passed for outcome in outcomes) else 1
        if not json:
            typer.echo(f"serving on {url} until Ctrl-C; API at {url}/docs")
        return None

    raise typer.Exit(serve.run(chosen, started))


async def _plug_missing(node: Node, refs: list[str]) -> None:
    """Plugs what doesn't serve yet, or serves an older image than the store has, all at once."""
    missing = [ref for ref in dict.fromkeys(refs) if not await node.serves(ref)]
    await asyncio.gather(*(node.plug(ref) for ref in missing))


def _client(config: Config, url: str) -> Client:
    return Client(url, key=config.api_keys[0] if config.api_keys else "")


def _announce(node: Node, url: str, seconds: float) -> None:
    names = ", ".join(unit["name"] for unit in node.units() if unit["state"] == "active")
    typer.echo(f"hailmesh is ready on {url} after {seconds:.1f} s with {names or 'no units'}")
    if not names:
        typer.echo("plug one: 'hailmesh oci ls' shows the images, 'hailmesh plug NAME' serves one")


def _report(outcomes: list[Outcome], as_json: bool) -> None:
    if as_json:
        print_json(
            {"passed": all(o.verdict.passed for o in outcomes), "requests": [_plain(o) for o in outcomes]}
        )
        return
    console = Console(highlight=False)
    for outcome in outcomes:
        mark = "[green]✓[/]" if outcome.verdict.passed else "[red]✗[/]"
        console.print(f"{mark} {outcome.case.unit:<7}{outcome.case.question}")
        console.print(
            f"          {summary(outcome.answer)}"
            if outcome.answer
            else f"          {outcome.verdict.reason}"
        )
        if outcome.answer and not outcome.verdict.passed:
            console.print(f"          [red]{outcome.verdict.reason}[/]")


def _plain(outcome: Outcome) -> dict[str, Any]:
    stages = {name: outcome.timings.get(name, 0.0) for name in ("queue", "sandbox", "bridge", "kernel")}
    return {
        "unit": outcome.case.unit,
        "modality": outcome.case.modality,
        "input": outcome.case.question,
        "answer": outcome.answer.get("text") or outcome.answer.get("labels") or outcome.answer,
        "total_ms": round(outcome.total_ms, 3),
        "stages_ms": stages,
        "passed": outcome.verdict.passed,
        "reason": outcome.verdict.reason,
    }
