"""What `/v1/invoke` accepts: multipart, JSON, or one modality's bytes as the whole body."""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from hailmesh.hail.errors import UnitFault, UsageError
from hailmesh.mesh.api.body import chunks, declared_length, read_all
from hailmesh.mesh.api.call import JSON, Call, dumps
from hailmesh.mesh.api.fields import parse_object
from hailmesh.mesh.api.intake import PARAMS, Intake
from hailmesh.mesh.api.multipart import Form, FormPart
from hailmesh.router.request import Input

TEXT = "text"
MODALITIES = {"image": "image", "audio": "speech", "text": TEXT}
"""What a body of nothing but bytes is, by the first half of its media type, unless the query says."""
OCTETS = "application/octet-stream"
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """For each modality, in the order asked, its input, and its options."""

    inputs: dict[str, Input]
    params: dict[str, dict[str, Any]]


def content_type(call: Call) -> tuple[str, str]:
    """The whole Content-Type header, and its media type alone, in lower case."""
    whole = call.header(b"content-type") or ""
    return whole, whole.partition(";")[0].strip().lower()


async def read(call: Call, intake: Intake, modalities: tuple[str, ...]) -> Asked:
    """The body's inputs. Without `modalities`, whatever the body names is asked."""
    whole, media_type = content_type(call)
    length = declared_length(call)
    if media_type == "multipart/form-data":
        return await _multipart(call, intake, modalities, whole, length)
    if media_type == "application/json" or (not modalities and media_type == ""):
        return _from_json(intake, modalities, parse_object(await read_all(call)))
    if not modalities and (named := MODALITIES.get(media_type.partition("/")[0])):
        modalities = (named,)
    if len(modalities) != 1:
        raise UsageError(
            "Content-Type: expected multipart/form-data or application/json unless modalities= names one,"
            f" found '{media_type or 'none'}'"
        )
    sink = intake.sink(length if call.header(b"content-encoding") is None else None)
    async for chunk in chunks(call):
        sink.write(chunk)
    name = modalities[0]
    return Asked(
        {name: intake.sunk(name, whole or default_type(name), sink)}, params_of(call, modalities, None)
    )


async def _multipart(
    call: Call, intake: Intake, modalities: tuple[str, ...], content_type: str, length: int | None
) -> Asked:
    received = 0

    def place(name: str) -> Any:
        if name == PARAMS:
            return None
        expect(name, modalities)
        return intake.sink(None if length is None else max(0, length - received))

    form = Form(content_type, place)
    async for chunk in chunks(call):
        form.feed(chunk)
        received += len(chunk)
    form.finish()
    found = {name: _input(intake, part) for name, part in form.parts.items() if part.sink is not None}
    return complete(found, modalities, call, form.text(PARAMS))


def _input(intake: Intake, part: FormPart) -> Input:
    assert part.sink is not None
    return intake.sunk(part.name, part.media_type or default_type(part.name), part.sink)


def _from_json(intake: Intake, modalities: tuple[str, ...], body: dict[str, Any]) -> Asked:
    params = body.pop(PARAMS, None)
    found = {}
    for name, value in body.items():
        expect(name, modalities)
        if not isinstance(value, str):
            raise UsageError(f"{name}: expected a string ({'text' if name == TEXT else 'base64'})")
        found[name] = from_text(intake, name, value)
    missing(found, modalities)
    names = modalities or tuple(found)
    return Asked({name: found[name] for name in names}, split_params(params, names))


def from_text(intake: Intake, name: str, value: str) -> Input:
    """Text as it is; anything else from base64, bare or as a data: URL (RFC 2397)."""
    if name == TEXT:
        return intake.data(name, PLAIN, value.encode())
    media_type = OCTETS
    if value.startswith("data:"):
        head, comma, value = value.partition(",")
        if not comma or not head.endswith(";base64"):
            raise UsageError(f"{name}: expected a data: URL in base64")
        media_type = head[5:-7] or OCTETS
    try:
        return intake.data(name, media_type, b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{name}: not valid base64: {error}") from None


def expect(name: str, modalities: tuple[str, ...]) -> None:
    """UsageError if a part of that name wasn't asked for."""
    if modalities and name not in modalities:
        raise UsageError(f"'{name}' was sent but not asked for: modalities={','.join(modalities)}")


def missing(found: dict[str, Input], modalities: tuple[str, ...]) -> None:
    """UsageError if a modality that was asked for has no input, or there is none at all."""
    for name in modalities:
        if name not in found:
            raise UsageError(f"modality '{name}' was asked for, but the body has no part of that name")
    if not found:
        raise UsageError("the body has no input: send a part named image, text or speech")


def complete(found: dict[str, Input], modalities: tuple[str, ...], call: Call, params: str | None) -> Asked:
    """`found` in the order asked, with the options of the form's `params` field or of the query string."""
    missing(found, modalities)
    names = modalities or tuple(found)
    return Asked({name: found[name] for name in names}, params_of(call, names, params))


def params_of(call: Call, modalities: tuple[str, ...], text: str | None) -> dict[str, dict[str, Any]]:
    """The options per modality from a form field, or else from the query string."""
    text = text if text is not None else call.query(PARAMS)
    return split_params(parse_object(text.encode(), PARAMS) if text else None, modalities)


def split_params(params: Any, modalities: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Options keyed by modality; with one modality they may come bare."""
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise UsageError("params: expected a JSON object")
    keyed = all(name in modalities and isinstance(value, dict) for name, value in params.items())
    if keyed:
        return params
    if len(modalities) == 1:
        return {modalities[0]: params}
    raise UsageError(
        f'params: with several modalities, key the options by modality, like {{"{modalities[0]}": {{…}}}}'
    )


def default_type(name: str) -> str:
    return PLAIN if name == TEXT else OCTETS


def params_input(intake: Intake, params: dict[str, Any]) -> list[Input]:
    """The part with a request's options, if it has any. UsageError if they are nested deeper than the writer
    goes: the reader of the client's JSON goes further."""
    if not params:
        return []
    try:
        data = dumps(params)
    except UnitFault:
        raise UsageError(f"{PARAMS}: nested too deeply, expected less than 254 levels") from None
    return [intake.data(PARAMS, JSON.decode(), data)]


def streaming(call: Call) -> dict[str, Any]:
    """The option by which a unit is told that the client wants results as they come."""
    return {"stream": True} if call.flag("stream") else {}
