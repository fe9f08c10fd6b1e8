"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from typing import Any

from hailmesh.mesh.api.body import read_all
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.fields import FieldError, counted, optional, parse_object, required
from hailmesh.mesh.api.intake import Intake
from hailmesh.mesh.api.native_body import params_input
from hailmesh.mesh.api.openai import language
from hailmesh.mesh.api.openai.messages import messages
from hailmesh.mesh.api.openai.models import resolve
from hailmesh.mesh.api.openai.options import (
    MAX_TOP_LOGPROBS,
    include_usage,
    refuse_unsupported,
    sampling,
    service_tier,
)
from hailmesh.mesh.api.openai.stream import Chunks, stream_answer
from hailmesh.mesh.api.run import answer_headers, handle, watched
from hailmesh.mesh.api.shapes import Family


async def chat(call: Call) -> None:
    body = parse_object(await read_all(call))
    model = required(body, "model", str)
    unit = resolve(call, model, "text")
    refuse_unsupported(body)
    asked = messages(body.get("messages"))
    streamed = optional(body, "stream", bool) or False
    options = {"messages": asked, "stream": streamed, **sampling(body), **_logprobs(body)}
    with Intake(call) as intake:
        request = intake.request(unit, params_input(intake, options), qos=service_tier(body))
        head = {"id": f"chatcmpl-{call.unique}", "created": int(time.time()), "model": unit}
        wanted = "logprobs" in options
        async with watched(call, [request]):
            if streamed:
                await stream_answer(call, request, _ChatChunks(head, wanted), include_usage(body))
                return
            answer = await handle(call, request)
            try:
                await call.json(_completion(head, answer.body, wanted), headers=answer_headers(answer))
            finally:
                answer.close()


def _logprobs(body: dict[str, Any]) -> dict[str, Any]:
    """Whether log-probabilities are wanted, and of how many alternatives to each token."""
    top = counted(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if not optional(body, "logprobs", bool):
        if top is not None:
            raise FieldError("top_logprobs: needs logprobs to be true", "top_logprobs")
        return {}
    return {"logprobs": True, "top_logprobs": top or 0}


def _completion(head: dict[str, Any], reply: dict[str, Any], logprobs: bool) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": language.text_of(reply), "refusal": None},
        "logprobs": language.logprobs(reply, logprobs),
        "finish_reason": language.finish_reason(reply),
    }
    return {**head, "object": "chat.completion", "choices": [choice], "usage": language.usage(reply)}


class _ChatChunks(Chunks):
    def __init__(self, head: dict[str, Any], logprobs: bool) -> None:
        self._head = {**head, "object": "chat.completion.chunk"}
        self._logprobs = logprobs

    def opening(self) -> dict[str, Any] | None:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, emitted: dict[str, Any]) -> dict[str, Any]:
        delta = {"content": language.piece_of(emitted)}
        return self._chunk(delta, logprobs=language.logprobs(emitted, self._logprobs))

    def closing(self, reply: dict[str, Any]) -> dict[str, Any]:
        return self._chunk({}, finish_reason=language.finish_reason(reply))

    def usage(self, reply: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": language.usage(reply)}

    def _chunk(self, delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
        first = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **choice}
        return {**self._head, "choices": [first]}


_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["system", "developer", "user", "assistant"]}, "content": {}},
}
SAMPLING_SCHEMA: dict[str, Any] = {
    "max_tokens": {"type": "integer", "minimum": 1},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
    "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 4}]},
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "service_tier": {"enum": ["auto", "default", "flex", "priority"]},
}
ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/chat/completions",
        chat,
        "Continue a conversation",
        Family.OPENAI,
        body={
            "application/json": {
                "type": "object",
                "required": ["model", "messages"],
                "properties": {
                    "model": {"type": "string"},
                    "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
                    "logprobs": {"type": "boolean"},
                    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_TOP_LOGPROBS},
                    **SAMPLING_SCHEMA,
                },
            }
        },
        description="`stream: true` answers with server-sent events that end in `data: [DONE]`.",
    )
]
