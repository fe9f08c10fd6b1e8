"""`POST /v1/completions`: the older endpoint, where the prompt is plain text."""

from __future__ import annotations

import time
from typing import Any

from hailmesh.mesh.api.body import read_all
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.fields import FieldError, optional, parse_object, required
from hailmesh.mesh.api.intake import Intake
from hailmesh.mesh.api.native_body import params_input
from hailmesh.mesh.api.openai import language
from hailmesh.mesh.api.openai.chat import SAMPLING_SCHEMA
from hailmesh.mesh.api.openai.models import resolve
from hailmesh.mesh.api.openai.options import include_usage, refuse_unsupported, sampling, service_tier
from hailmesh.mesh.api.openai.stream import Chunks, stream_answer
from hailmesh.mesh.api.run import answer_headers, handle, watched
from hailmesh.mesh.api.shapes import Family


async def complete(call: Call) -> None:
    body = parse_object(await read_all(call))
    unit = resolve(call, required(body, "model", str), "text")
    refuse_unsupported(body)
    for name in ("logprobs", "suffix", "best_of", "echo"):
        if body.get(name) not in (None, False, "", 1 if name == "best_of" else None):
            raise FieldError(f"{name}: not supported here", name)
    prompt = _prompt(body.get("prompt"))
    streamed = optional(body, "stream", bool) or False
    options = {"prompt": prompt, "stream": streamed, **sampling(body)}
    with Intake(call) as intake:
        request = intake.request(unit, params_input(intake, options), qos=service_tier(body))
        head = {
            "id": f"cmpl-{call.unique}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": unit,
        }
        async with watched(call, [request]):
            if streamed:
                await stream_answer(call, request, _TextChunks(head), include_usage(body))
                return
            answer = await handle(call, request)
            try:
                choice = _choice(language.text_of(answer.body), language.finish_reason(answer.body))
                completion = {**head, "choices": [choice], "usage": language.usage(answer.body)}
                await call.json(completion, headers=answer_headers(answer))
            finally:
                answer.close()


def _prompt(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise FieldError("prompt: expected one string", "prompt")
    return value


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


class _TextChunks(Chunks):
    def __init__(self, head: dict[str, Any]) -> None:
        self._head = head

    def opening(self) -> dict[str, Any] | None:
        return None

    def piece(self, emitted: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [_choice(language.piece_of(emitted), None)]}

    def closing(self, reply: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [_choice("", language.finish_reason(reply))]}

    def usage(self, reply: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": language.usage(reply)}


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/completions",
        complete,
        "Continue a text",
        Family.OPENAI,
        body={
            "application/json": {
                "type": "object",
                "required": ["model", "prompt"],
                "properties": {"model": {"type": "string"}, "prompt": {"type": "string"}, **SAMPLING_SCHEMA},
            }
        },
    )
]
