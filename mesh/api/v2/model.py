"""A unit as the Open Inference Protocol sees it: a model with named, typed inputs and outputs.

A unit whose image names a graph for tensors (`infer`), or has just one graph, shows that graph's tensors. Any
other takes one BYTES element named by its modality, and gives its JSON reply as one BYTES element, `reply`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import NotFound
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.tensors import BYTES, datatype

REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor; dtype None is BYTES, a dimension of -1 is free."""

    name: str
    dtype: DType | None
    shape: tuple[int, ...]

    @property
    def datatype(self) -> str:
        return BYTES if self.dtype is None else datatype(self.dtype)

    def metadata(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Model:
    """`graph` tells the two kinds apart."""

    unit: str
    version: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    graph: bool

    def input(self, name: str) -> Spec | None:
        return next((spec for spec in self.inputs if spec.name == name), None)


def model_of(call: Call) -> Model:
    """The model of the path's {model}, and {version} if there is one. NotFound."""
    unit = call.node.unit(call.node.route(call.path_params["model"]))
    version = call.path_params.get("version")
    if version is not None and version != unit["version"]:
        raise NotFound(f"unit {unit['name']} has no version '{version}', it serves {unit['version']}")
    return describe(unit)


def describe(unit: dict[str, Any]) -> Model:
    """The model of a unit, as `Node.unit` describes it."""
    graphs: dict[str, dict[str, Any]] = unit["graphs"]
    name = unit.get("infer") or (next(iter(graphs)) if len(graphs) == 1 else "")
    graph = graphs.get(name)
    if graph is None or graph["kind"] != "graph":
        sole = (Spec(unit["modality"], None, (1,)),)
        return Model(unit["name"], unit["version"], sole, (Spec(REPLY, None, (1,)),), graph=False)
    inputs, outputs = (
        tuple(Spec(spec["name"], DType(spec["dtype"]), tuple(spec["shape"])) for spec in graph[side])
        for side in ("inputs", "outputs")
    )
    return Model(unit["name"], unit["version"], inputs, outputs, graph=True)
