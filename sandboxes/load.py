"""From a LoadSpec to a unit that can serve: everything comes as descriptors, already verified."""

from __future__ import annotations

import os
from dataclasses import dataclass

import orjson

from hailmesh.hail.arena import Arena
from hailmesh.hail.errors import ImageError
from hailmesh.hail.gate import Gate
from hailmesh.kernels.registry import kernel
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.protocol import GraphSpec, LoadSpec
from hailmesh.sandboxes.stopwatch import MeteredLane
from hailmesh.sandboxes.unit import Graph, Unit
from hailmesh.sandboxes.warm import warm_up


@dataclass(frozen=True, slots=True)
class Loaded:
    unit: Unit
    module: LinkedModule
    lane: MeteredLane


def load(spec: LoadSpec) -> Loaded:
    """Attaches the arena, loads module, graphs and kernels, and warms them up. Any MeshError."""
    arena = Arena.attach(spec.arena_fd, spec.arena_offset, spec.arena_size)
    lane = MeteredLane(spec.lane, spec.cores, Gate(arena.address, spec.gate_row), spec.wide)
    module = LinkedModule(spec.module_fd)
    unit = Unit(
        name=spec.unit,
        arena=arena,
        config=orjson.dumps(spec.config),
        graphs={name: _graph(name, given, spec, arena, lane) for name, given in spec.graphs.items()},
        kernels={name: kernel(name, lane) for name in spec.kernels},
        limits=spec.limits,
    )
    for graph in unit.graphs.values():
        warm_up(graph, arena)
    for fd in _descriptors(spec):
        os.close(fd)
    return Loaded(unit, module, lane)


def _graph(name: str, graph: GraphSpec, spec: LoadSpec, arena: Arena, lane: MeteredLane) -> Graph:
    # Imported where they are needed: a unit without graphs does without the runtimes.
    if graph.kind == "sequence":
        from hailmesh.kernels.sequence import SequenceEngine
        from hailmesh.kernels.tokenizer import Tokenizer

        engine = SequenceEngine(
            graph.fd,
            context=graph.context,
            slots=graph.slots,
            threads=spec.threads,
            spin=spec.spin,
            lane=lane,
            arena=arena,
            name=name,
            owner=spec.unit,
        )
        tokenizer = Tokenizer(graph.tokenizer_fd) if graph.tokenizer_fd >= 0 else None
        return Graph(name, sequences=engine, tokenizer=tokenizer)
    if graph.kind != "graph":
        raise ImageError(f"graph {name!r} is of kind {graph.kind!r}; there are graph and sequence")
    from hailmesh.kernels.onnx import OnnxExecutor

    return Graph(
        name, executor=OnnxExecutor(graph.fd, threads=spec.threads, spin=spec.spin, lane=lane, name=name)
    )


def _descriptors(spec: LoadSpec) -> set[int]:
    """Those that nothing reads from any more once all is loaded."""
    fds = {spec.module_fd}
    for graph in spec.graphs.values():
        fds |= {graph.fd, graph.tokenizer_fd}
    return {fd for fd in fds if fd >= 0}
