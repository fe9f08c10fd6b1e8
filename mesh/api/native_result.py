"""A unit's answer, or why there is none, as the native API shows it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.errors import MeshError
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.ports import Answer
from hailmesh.mesh.api.run import answer_headers
from hailmesh.mesh.api.shapes import failure
from hailmesh.mesh.api.tensors import datatype, raw_bytes


def result(answer: Answer) -> dict[str, Any]:
    """A unit's reply, its tensors in base64, and who gave it in which time."""
    body = {
        **answer.body,
        "unit": answer.unit,
        "version": answer.version,
        "digest": answer.digest,
        "timings": answer.timings,
    }
    if answer.tensors:
        body["tensors"] = {name: _tensor(buffer) for name, buffer in answer.tensors.items()}
    return body


def failed(call: Call, error: MeshError) -> dict[str, Any]:
    """What stands in the place of a result."""
    status, body, _ = failure(call.family, error)
    return {**body, "status": status}


async def reply_one(call: Call, name: str, answer: Answer, received_ms: float) -> None:
    """The whole response where one modality was asked."""
    await reply(call, {name: result(answer)}, received_ms, answer_headers(answer))


async def reply(
    call: Call, results: dict[str, Any], received_ms: float, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """The whole response. `receive` is how long the body took to arrive."""
    timings = {"receive": round(received_ms, 3), "total": round(call.elapsed_ms, 3)}
    await call.json({"id": call.id, "results": results, "timings": timings}, headers=headers)


def _tensor(buffer: Buffer) -> dict[str, Any]:
    return {
        "datatype": datatype(buffer.dtype),
        "shape": list(buffer.shape),
        "data": b64encode(raw_bytes(buffer)).decode(),
    }
