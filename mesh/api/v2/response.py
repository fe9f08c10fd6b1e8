"""The answer to an inference request."""

from __future__ import annotations

from typing import Any

import numpy as np

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.errors import UnitFault
from hailmesh.mesh.api.call import Call, dumps
from hailmesh.mesh.api.ports import Answer
from hailmesh.mesh.api.run import answer_headers
from hailmesh.mesh.api.tensors import BYTES, datatype, raw_bytes
from hailmesh.mesh.api.v2.elements import bytes_element
from hailmesh.mesh.api.v2.model import Model
from hailmesh.mesh.api.v2.request import InferRequest, TensorOut


async def respond(call: Call, model: Model, asked: InferRequest, answer: Answer) -> None:
    """JSON, and after it the bytes of those outputs that were wanted in binary."""
    outputs: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for wanted in asked.outputs:
        entry, data = _output(wanted, answer) if model.graph else _reply(wanted, answer)
        outputs.append(entry)
        if data is not None:
            raw.append(data)
    body = {"model_name": model.unit, "model_version": answer.version, "outputs": outputs}
    if asked.id is not None:
        body["id"] = asked.id
    head = dumps(body)
    headers = answer_headers(answer)
    if not raw:
        await call.reply(head, headers=headers)
        return
    headers.append((b"inference-header-content-length", str(len(head)).encode()))
    await call.reply(b"".join([head, *raw]), content_type=b"application/octet-stream", headers=headers)


def _output(wanted: TensorOut, answer: Answer) -> tuple[dict[str, Any], bytes | None]:
    buffer = answer.tensors.get(wanted.name)
    if buffer is None:
        raise UnitFault(f"unit {answer.unit} replied without the tensor {wanted.name}")
    entry: dict[str, Any] = {
        "name": wanted.name,
        "datatype": datatype(buffer.dtype),
        "shape": list(buffer.shape),
    }
    if wanted.binary:
        entry["parameters"] = {"binary_data_size": buffer.nbytes}
        return entry, raw_bytes(buffer)
    entry["data"] = _flat(buffer)
    return entry, None


def _flat(buffer: Buffer) -> Any:
    """The elements in row-major order; half floats as the numbers they are."""
    array = buffer.numpy().reshape(-1)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _reply(wanted: TensorOut, answer: Answer) -> tuple[dict[str, Any], bytes | None]:
    """The unit's JSON reply as one BYTES element."""
    entry: dict[str, Any] = {"name": wanted.name, "datatype": BYTES, "shape": [1]}
    text = dumps(answer.body)
    if wanted.binary:
        data = bytes_element(text)
        entry["parameters"] = {"binary_data_size": len(data)}
        return entry, data
    entry["data"] = [text.decode()]
    return entry, None
