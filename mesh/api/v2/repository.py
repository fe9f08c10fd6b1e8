"""The repository extension: what there is, and loading and unloading it, which is management."""

from __future__ import annotations

from hailmesh.mesh.api.body import read_all
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Access, Endpoint
from hailmesh.mesh.api.fields import optional, parse_object
from hailmesh.mesh.api.shapes import Family
from hailmesh.mesh.api.units import DRAIN

_STATES = {"active": "READY", "failed": "UNAVAILABLE", "draining": "UNLOADING", "retired": "UNAVAILABLE"}


async def index(call: Call) -> None:
    """Clients send an empty body, or {"ready": true} for those that are."""
    raw = await read_all(call)
    only_ready = bool(raw and optional(parse_object(raw), "ready", bool))
    entries = [
        {
            "name": unit["name"],
            "version": unit["version"],
            "state": _STATES.get(unit["state"], "LOADING"),
            "reason": unit["reason"],
        }
        for unit in call.node.units()
    ]
    shown = [entry for entry in entries if entry["state"] == "READY" or not only_ready]
    await call.json(shown)


async def load(call: Call) -> None:
    await call.node.plug(call.path_params["model"])
    await call.json({})


async def unload(call: Call) -> None:
    await call.node.unplug(call.path_params["model"], DRAIN)
    await call.json({})


ENDPOINTS = [
    Endpoint("POST", "/v2/repository/index", index, "All units and their states", Family.V2),
    Endpoint(
        "POST",
        "/v2/repository/models/{model}/load",
        load,
        "Plug a unit of the store",
        Family.V2,
        Access.MANAGE,
    ),
    Endpoint(
        "POST", "/v2/repository/models/{model}/unload", unload, "Unplug a unit", Family.V2, Access.MANAGE
    ),
]
