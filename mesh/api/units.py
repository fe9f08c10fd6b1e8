"""`/v1/units`: what runs, plugging and unplugging, logs."""

from __future__ import annotations

import math

from hailmesh.hail.errors import UsageError
from hailmesh.mesh.api.body import read_all
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Access, Endpoint
from hailmesh.mesh.api.fields import parse_object, required

DRAIN = 30.0
"""Seconds that running requests get by default when their unit is unplugged."""


async def list_units(call: Call) -> None:
    await call.json({"units": call.node.units()})


async def show_unit(call: Call) -> None:
    await call.json(call.node.unit(call.path_params["name"]))


async def plug(call: Call) -> None:
    body = parse_object(await read_all(call))
    await call.json(await call.node.plug(required(body, "ref", str)), status=201)


async def unplug(call: Call) -> None:
    name = call.path_params["name"]
    await call.node.unplug(name, drain_seconds(call.query("drain")))
    await call.json({"name": name, "state": "retired"})


async def logs(call: Call) -> None:
    await call.json({"lines": call.node.logs(call.path_params["name"])})


def drain_seconds(text: str | None) -> float:
    """Seconds to drain from the query string; UsageError unless they are 0 or more."""
    try:
        seconds = DRAIN if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"drain: expected seconds, 0 or more, found '{text}'")
    return seconds


ENDPOINTS = [
    Endpoint("GET", "/v1/units", list_units, "The units and their states"),
    Endpoint("GET", "/v1/units/{name}", show_unit, "One unit"),
    Endpoint(
        "POST",
        "/v1/units",
        plug,
        "Plug a unit: load it from the store, answer once it is active",
        access=Access.MANAGE,
        body={
            "application/json": {
                "type": "object",
                "required": ["ref"],
                "properties": {"ref": {"type": "string", "description": "A name, name:version or digest"}},
            }
        },
    ),
    Endpoint(
        "DELETE",
        "/v1/units/{name}",
        unplug,
        "Unplug a unit, letting its running requests finish",
        access=Access.MANAGE,
        query={"drain": "Seconds that running requests get, 30 by default"},
    ),
    Endpoint("GET", "/v1/units/{name}/logs", logs, "The last lines a unit logged", access=Access.MANAGE),
]
