"""`POST /v1/audio/transcriptions`."""

from __future__ import annotations

import math
from contextlib import aclosing
from typing import Any

from hailmesh.hail.errors import Cancelled, MeshError, UsageError
from hailmesh.mesh.api.body import Sink, chunks, declared_length
from hailmesh.mesh.api.call import Call, dumps
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.fields import FieldError
from hailmesh.mesh.api.intake import Intake
from hailmesh.mesh.api.multipart import Form
from hailmesh.mesh.api.native_body import OCTETS, content_type, params_input
from hailmesh.mesh.api.native_stream import parse_chunk
from hailmesh.mesh.api.openai.language import piece_of
from hailmesh.mesh.api.openai.models import resolve
from hailmesh.mesh.api.run import answer_headers, handle, stream, watched
from hailmesh.mesh.api.shapes import Family, failure
from hailmesh.mesh.api.sse import EventStream
from hailmesh.router.request import Request

SPEECH = "speech"
FORMATS = ("json", "text")
WITH_TIMESTAMPS = ("verbose_json", "srt", "vtt", "diarized_json")


async def transcribe(call: Call) -> None:
    with Intake(call) as intake:
        form = await _read(call, intake)
        recording = form.parts.get("file")
        if recording is None or recording.sink is None:
            raise FieldError("file is missing: expected the recording", "file")
        model = form.text("model")
        if model is None:
            raise FieldError("model is missing: expected the name of a speech unit", "model")
        unit = resolve(call, model, SPEECH)
        response_format = _format(form)
        entry = intake.sunk(SPEECH, recording.media_type or OCTETS, recording.sink)
        streamed = form.text("stream") == "true"
        options = {**_options(form), **({"stream": True} if streamed else {})}
        request = intake.request(unit, [entry, *params_input(intake, options)])
        async with watched(call, [request]):
            if streamed:
                await _stream(call, request)
            else:
                await _answer(call, request, response_format)


async def _read(call: Call, intake: Intake) -> Form:
    whole, media_type = content_type(call)
    if media_type != "multipart/form-data":
        raise UsageError(f"Content-Type: expected multipart/form-data, found '{media_type or 'none'}'")
    length = declared_length(call)

    def place(name: str) -> Sink | None:
        return intake.sink(length) if name == "file" else None

    form = Form(whole, place)
    async for chunk in chunks(call):
        form.feed(chunk)
    form.finish()
    return form


def _format(form: Form) -> str:
    wanted = form.text("response_format") or "json"
    if wanted in WITH_TIMESTAMPS:
        raise FieldError(
            f"response_format: {wanted} needs timestamps or speakers, which this node doesn't give;"
            " use json or text",
            "response_format",
        )
    if wanted not in FORMATS:
        raise FieldError(f"response_format: expected json or text, found '{wanted}'", "response_format")
    if any(name.startswith("timestamp_granularities") for name in form.parts):
        raise FieldError("timestamp_granularities: this node gives no timestamps", "timestamp_granularities")
    return wanted


def _options(form: Form) -> dict[str, Any]:
    """The unit's options: language, prompt, temperature."""
    options: dict[str, Any] = {name: text for name in ("language", "prompt") if (text := form.text(name))}
    if (text := form.text("temperature")) is not None:
        try:
            temperature = float(text)
        except ValueError:
            temperature = math.nan
        if not 0 <= temperature <= 1:
            raise FieldError(f"temperature: expected a number from 0 to 1, found '{text}'", "temperature")
        options["temperature"] = temperature
    return options


async def _answer(call: Call, request: Request, response_format: str) -> None:
    answer = await handle(call, request)
    try:
        text = str(answer.body.get("text", ""))
        headers = answer_headers(answer)
        if response_format == "text":
            await call.reply(
                text.encode() + b"\n", content_type=b"text/plain; charset=utf-8", headers=headers
            )
        else:
            await call.json({"text": text}, headers=headers)
    finally:
        answer.close()


async def _stream(call: Call, request: Request) -> None:
    """OpenAI's transcript events."""
    events = EventStream(call)
    try:
        async with aclosing(stream(call, request)) as source:
            async for event in source:
                if isinstance(event, bytes):
                    delta = piece_of(parse_chunk(request.unit, event))
                    await events.send(dumps({"type": "transcript.text.delta", "delta": delta}))
                    continue
                text = str(event.body.get("text", ""))
                event.close()
                await events.send(dumps({"type": "transcript.text.done", "text": text}))
    except Cancelled:
        raise
    except MeshError as error:
        if not call.started:
            raise
        await events.send(dumps(failure(call.family, error)[1]), "error")
        await events.end(done=False)
        return
    await events.end()


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/audio/transcriptions",
        transcribe,
        "Write down what a recording says",
        Family.OPENAI,
        body={
            "multipart/form-data": {
                "type": "object",
                "required": ["file", "model"],
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "model": {"type": "string"},
                    "language": {"type": "string"},
                    "prompt": {"type": "string"},
                    "response_format": {"enum": list(FORMATS)},
                    "temperature": {"type": "number"},
                    "stream": {"type": "boolean"},
                },
            }
        },
    )
]
