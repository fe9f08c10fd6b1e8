"""`POST /v2/models/{model}/infer`: JSON, or JSON followed by the tensors' raw little-endian bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hailmesh.hail.errors import TooLarge, UsageError
from hailmesh.mesh.api.body import chunks, declared_length, writable
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.fields import parse_object
from hailmesh.mesh.api.intake import Intake
from hailmesh.mesh.api.native_body import default_type, params_input
from hailmesh.mesh.api.run import handle, watched
from hailmesh.mesh.api.shapes import Family
from hailmesh.mesh.api.v2.elements import fill_from_json, one_element
from hailmesh.mesh.api.v2.model import Model, model_of
from hailmesh.mesh.api.v2.request import InferRequest, TensorIn, parse, raw
from hailmesh.mesh.api.v2.response import respond
from hailmesh.router.request import Input

HEADER_LENGTH = b"inference-header-content-length"
MAX_JSON_HEADER = 4 << 20


async def infer(call: Call) -> None:
    model = model_of(call)
    length = declared_length(call)
    reader = _Reader(chunks(call))
    header = call.header(HEADER_LENGTH)
    with Intake(call) as intake:
        if header is None:
            asked = parse(parse_object(await reader.all()), model)
        elif (size := _header_length(header)) == 0:
            asked = raw(model, await _raw_size(call, length))
        else:
            asked = parse(parse_object(await reader.exactly(size), "the inference header"), model)
        inputs = await _inputs(intake, model, asked, reader)
        await reader.end()
        request = intake.request(
            model.unit,
            [*inputs, *params_input(intake, {**asked.options, **_wanted(model, asked)})],
            qos="batch" if asked.lowered else None,
            deadline=asked.timeout,
        )
        async with watched(call, [request]):
            answer = await handle(call, request)
            try:
                await respond(call, model, asked, answer)
            finally:
                answer.close()


def _wanted(model: Model, asked: InferRequest) -> dict[str, Any]:
    """The unit's option that names outputs, where not all of them are wanted."""
    names = [output.name for output in asked.outputs]
    return {"outputs": names} if model.graph and len(names) < len(model.outputs) else {}


def _header_length(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_JSON_HEADER:
        raise UsageError(
            f"Inference-Header-Content-Length: expected 0 to {MAX_JSON_HEADER} bytes, found '{text}'"
        )
    return int(text)


async def _raw_size(call: Call, length: int | None) -> int:
    if length is None or call.header(b"content-encoding") is not None:
        raise UsageError("a raw request needs a Content-Length and no Content-Encoding")
    return length


class _Reader:
    """Hands out the body in pieces of known sizes."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._rest = memoryview(b"")

    async def exactly(self, size: int) -> bytes:
        held = bytearray(size)
        await self.into(memoryview(held))
        return bytes(held)

    async def all(self) -> bytes:
        """The rest of the body."""
        return bytes(self._rest) + b"".join([chunk async for chunk in self._source])

    async def into(self, target: memoryview) -> None:
        """Fills `target`; UsageError if the body ends before."""
        filled = 0
        while filled < len(target):
            if not self._rest and not await self._more():
                raise UsageError(f"the body ends {len(target) - filled} bytes early")
            piece = self._rest[: len(target) - filled]
            target[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._rest = self._rest[len(piece) :]

    async def end(self) -> None:
        """Nothing may be left; reads to the body's end, so that leaving is noticed from here on."""
        while not self._rest:
            if not await self._more():
                return
        raise UsageError("the body goes on after the last tensor that it announced")

    async def _more(self) -> bool:
        async for chunk in self._source:
            self._rest = memoryview(chunk)
            return True
        return False


async def _inputs(intake: Intake, model: Model, asked: InferRequest, reader: _Reader) -> list[Input]:
    return [await _input(intake, model, tensor, reader) for tensor in asked.inputs]


async def _input(intake: Intake, model: Model, tensor: TensorIn, reader: _Reader) -> Input:
    if tensor.dtype is None:
        data = tensor.data if tensor.binary is None else await reader.exactly(_bounded(tensor, intake))
        return intake.data(tensor.name, default_type(tensor.name), one_element(tensor, data))
    _bounded(tensor, intake)
    entry = intake.tensor(tensor.name, tensor.dtype, tensor.shape)
    if tensor.binary is None:
        fill_from_json(entry, tensor)
    else:
        await reader.into(writable(entry.lease)[: entry.size])
    return entry


def _bounded(tensor: TensorIn, intake: Intake) -> int:
    """The tensor's bytes, before they are leased; TooLarge over the node's limit."""
    size = tensor.nbytes
    if size > intake.limit:
        raise TooLarge(f"{tensor.name} has {size} bytes, this node takes {intake.limit} (max_body)")
    return size


_TENSOR: dict[str, Any] = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "parameters": {"type": "object"},
        "data": {"type": "array"},
    },
}
ENDPOINTS = [
    Endpoint(
        "POST",
        f"/v2/models/{{model}}{version}/infer",
        infer,
        "Run a unit on tensors",
        Family.V2,
        body={
            "application/json": {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string"},
                    "parameters": {"type": "object"},
                    "inputs": {"type": "array", "items": _TENSOR},
                    "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
                },
            }
        },
        description="With Inference-Header-Content-Length, the tensors' bytes follow the JSON.",
    )
    for version in ("", "/versions/{version}")
]
