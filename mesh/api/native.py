"""`POST /v1/invoke`: one request, one or several modalities at once."""

from __future__ import annotations

import asyncio
from typing import Any

from hailmesh.hail.errors import MeshError, UsageError
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.intake import Intake
from hailmesh.mesh.api.native_body import Asked, params_input, read, streaming
from hailmesh.mesh.api.native_growing import invoke_growing
from hailmesh.mesh.api.native_result import failed, reply, reply_one, result
from hailmesh.mesh.api.native_stream import stream_all
from hailmesh.mesh.api.ports import Answer
from hailmesh.mesh.api.run import handle, watched
from hailmesh.mesh.api.shapes import failure
from hailmesh.router.request import Request


async def invoke(call: Call) -> None:
    modalities = asked_modalities(call)
    units = {name: call.node.route(call.query("unit") or name) for name in modalities}
    if call.flag("streamed"):
        if len(modalities) != 1:
            raise UsageError("streamed=true: name the one modality that is uploaded, like modalities=speech")
        await invoke_growing(call, modalities[0], units[modalities[0]])
        return
    with Intake(call) as intake:
        asked = await read(call, intake, modalities)
        received_ms = call.elapsed_ms
        for name in asked.inputs:
            units.setdefault(name, call.node.route(call.query("unit") or name))
        requests = make_requests(intake, asked, units)
        async with watched(call, list(requests.values())):
            if call.flag("stream"):
                await stream_all(call, requests)
            else:
                await _answer(call, requests, received_ms)


def asked_modalities(call: Call) -> tuple[str, ...]:
    """The query's modalities, each once; empty if the body is to say. UsageError."""
    text = call.query("modalities")
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if "" in names or len(set(names)) < len(names):
        raise UsageError(f"modalities: expected different names like image,text,speech, found '{text}'")
    if len(names) > 1 and call.query("unit") is not None:
        raise UsageError("unit: goes with one modality; with several, each goes to the unit that serves it")
    return names


def make_requests(intake: Intake, asked: Asked, units: dict[str, str]) -> dict[str, Request]:
    """One request per modality; with `stream`, units are told to emit what they have so far."""
    alone = len(asked.inputs) == 1
    also = streaming(intake.call)
    return {
        name: intake.request(
            units[name],
            [entry, *params_input(intake, {**asked.params.get(name, {}), **also})],
            suffix="" if alone else f"-{name}",
        )
        for name, entry in asked.inputs.items()
    }


async def _answer(call: Call, requests: dict[str, Request], received_ms: float) -> None:
    """All at once; one that fails among several spares the others."""
    if len(requests) == 1:
        ((name, request),) = requests.items()
        answer = await handle(call, request)
        try:
            await reply_one(call, name, answer, received_ms)
        finally:
            answer.close()
        return
    outcomes = await asyncio.gather(
        *(handle(call, request) for request in requests.values()), return_exceptions=True
    )
    try:
        await _reply_all(call, dict(zip(requests, outcomes, strict=True)), received_ms)
    finally:
        for outcome in outcomes:
            if not isinstance(outcome, BaseException):
                outcome.close()


async def _reply_all(call: Call, outcomes: dict[str, Answer | BaseException], received_ms: float) -> None:
    results: dict[str, Any] = {}
    failures: list[MeshError] = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, MeshError):
            failures.append(outcome)
            results[name] = failed(call, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results[name] = result(outcome)
    if len(failures) < len(outcomes):
        await reply(call, results, received_ms)
        return
    status, body, headers = failure(call.family, failures[0])
    await call.json({**body, "id": call.id, "results": results}, status, headers)


_BINARY = {"type": "string", "format": "binary"}
ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/invoke",
        invoke,
        "Ask one question in one or several modalities",
        query={
            "modalities": "What is asked, like image,text,speech; by default the parts that the body has",
            "unit": "The unit to ask, where one modality is asked and its default unit isn't wanted",
            "stream": "true: server-sent events as results come",
            "streamed": "true: the unit starts while the (only) input is still being uploaded",
            "params": "The unit's options, a JSON object, where the body can't carry them",
        },
        body={
            "multipart/form-data": {
                "type": "object",
                "properties": {
                    "image": _BINARY,
                    "text": {"type": "string"},
                    "speech": _BINARY,
                    "params": {"type": "string", "contentMediaType": "application/json"},
                },
            },
            "application/json": {
                "type": "object",
                "properties": {
                    "image": {"type": "string", "contentEncoding": "base64"},
                    "text": {"type": "string"},
                    "speech": {"type": "string", "contentEncoding": "base64"},
                    "params": {"type": "object"},
                },
            },
        },
        description=(
            "All modalities run concurrently. One that fails among several has an `error` and a `status` in"
            " its place; the answer is 200 as long as one succeeded. Headers: X-Deadline-Ms, X-QoS-Class,"
            " X-Request-Id."
        ),
    )
]
