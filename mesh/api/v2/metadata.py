"""Health and metadata of the server and its models."""

from __future__ import annotations

from typing import Any

from hailmesh import __version__
from hailmesh.hail.errors import DeviceError
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.endpoint import Access, Endpoint
from hailmesh.mesh.api.shapes import Family
from hailmesh.mesh.api.v2.model import model_of

EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"]


async def server(call: Call) -> None:
    await call.json({"name": "hailmesh", "version": __version__, "extensions": EXTENSIONS})


async def live(call: Call) -> None:
    await call.json({"live": True})


async def ready(call: Call) -> None:
    """The body is for clients that read it, the status for those that don't."""
    state = call.node.ready
    await call.json({"live": True, "ready": state}, status=200 if state else 503)


async def model(call: Call) -> None:
    described = model_of(call)
    await call.json(
        {
            "name": described.unit,
            "versions": [described.version],
            "platform": "hailmesh",
            "inputs": [spec.metadata() for spec in described.inputs],
            "outputs": [spec.metadata() for spec in described.outputs],
        }
    )


async def model_ready(call: Call) -> None:
    described = model_of(call)
    state = call.node.unit(described.unit)["state"]
    if state != "active":
        raise DeviceError(f"unit {described.unit} is {state}, not active")
    await call.json({"name": described.unit, "ready": True})


async def config(call: Call) -> None:
    """What Triton's clients call a model's configuration."""
    described = model_of(call)
    await call.json(
        {
            "name": described.unit,
            "platform": "hailmesh",
            "backend": "hailmesh",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": 0,
            "input": [_config_tensor(spec.metadata()) for spec in described.inputs],
            "output": [_config_tensor(spec.metadata()) for spec in described.outputs],
            "instance_group": [{"name": described.unit, "count": call.node.unit(described.unit)["slots"]}],
        }
    )


async def stats(call: Call) -> None:
    """Counts and nanoseconds since the node began."""
    described = model_of(call)
    tally = call.service.metrics.tally(described.unit)
    stages = {stage: int(seconds * 1e9) for stage, seconds in tally.stages.items()}
    count = tally.answered
    busy = stages["kernel"] + stages["gate"]
    statistics = {
        "success": _duration(count, stages["total"]),
        "fail": _duration(tally.failed, int(tally.failed_seconds * 1e9)),
        "queue": _duration(count, stages["queue"]),
        "compute_input": _duration(count, stages["sandbox"]),
        "compute_infer": _duration(count, busy),
        "compute_output": _duration(count, stages["bridge"]),
        "cache_hit": _duration(0, 0),
        "cache_miss": _duration(0, 0),
    }
    entry = {
        "name": described.unit,
        "version": described.version,
        "last_inference": int(tally.last * 1e3),
        "inference_count": count,
        "execution_count": count,
        "inference_stats": statistics,
        "batch_stats": [],
        "memory_usage": [],
        "response_stats": {},
    }
    await call.json({"model_stats": [entry]})


def _duration(count: int, nanoseconds: int) -> dict[str, int]:
    return {"count": count, "ns": nanoseconds}


def _config_tensor(metadata: dict[str, Any]) -> dict[str, Any]:
    kind = "STRING" if metadata["datatype"] == "BYTES" else metadata["datatype"]
    return {"name": metadata["name"], "data_type": f"TYPE_{kind}", "dims": metadata["shape"]}


def _both(path: str, handler: Any, summary: str) -> list[Endpoint]:
    """The endpoint with and without a version in its path."""
    return [
        Endpoint("GET", f"/v2/models/{{model}}{version}{path}", handler, summary, Family.V2)
        for version in ("", "/versions/{version}")
    ]


ENDPOINTS = [
    Endpoint("GET", "/v2", server, "The server", Family.V2),
    Endpoint("GET", "/v2/", server, "The server", Family.V2),
    Endpoint("GET", "/v2/health/live", live, "200 while the node answers", Family.V2, Access.OPEN),
    Endpoint("GET", "/v2/health/ready", ready, "200 once all units serve", Family.V2, Access.OPEN),
    *_both("", model, "A unit's inputs and outputs"),
    *_both("/ready", model_ready, "200 while the unit serves"),
    *_both("/config", config, "A unit's configuration, in Triton's form"),
    *_both("/stats", stats, "A unit's counts and times, in Triton's form"),
]
