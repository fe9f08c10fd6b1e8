"""`/v1/models`: the units under OpenAI's name for them."""

from __future__ import annotations

from typing import Any

from hailmesh.hail.errors import NotFound
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Endpoint
from hailmesh.mesh.api.fields import FieldError
from hailmesh.mesh.api.shapes import Family


class ModelNotFound(NotFound):
    """As OpenAI calls a unit that isn't there."""

    code = "model_not_found"


def resolve(call: Call, model: str, modality: str) -> str:
    """The unit behind a model's name. ModelNotFound; FieldError if it serves another modality."""
    unit = _known(call, model)
    serves = call.node.unit(unit)["modality"]
    if serves != modality:
        raise FieldError(
            f"model {model} takes {serves}, this endpoint needs one that takes {modality}", "model"
        )
    return unit


async def list_models(call: Call) -> None:
    active = [unit for unit in call.node.units() if unit["state"] == "active"]
    await call.json({"object": "list", "data": [_model(unit) for unit in active]})


async def show_model(call: Call) -> None:
    await call.json(_model(call.node.unit(_known(call, call.path_params["model"]))))


def _known(call: Call, model: str) -> str:
    try:
        return call.node.route(model)
    except NotFound as error:
        raise ModelNotFound(f"the model '{model}' does not exist: {error}") from None


def _model(unit: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": unit["name"],
        "object": "model",
        "created": int(unit["since"]),
        "owned_by": "hailmesh",
        "version": unit["version"],
        "modality": unit["modality"],
    }


ENDPOINTS = [
    Endpoint("GET", "/v1/models", list_models, "The active units", Family.OPENAI),
    Endpoint("GET", "/v1/models/{model}", show_model, "One unit", Family.OPENAI),
]
