"""A graph's first run, made before anybody waits for it: it allocates what later runs find ready."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack

import numpy as np

from hailmesh.hail.arena import Arena
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import MeshError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.sandboxes.unit import Graph

_SECONDS = 20
_OWNER = "warm-up"
_log = logging.getLogger(__name__)


def warm_up(graph: Graph, arena: Arena) -> None:
    """Runs a graph on zeros, free dimensions being 1. A graph that doesn't take these is left cold: that
    says nothing against it."""
    token = CancelToken(time.monotonic_ns() + _SECONDS * 1_000_000_000)
    try:
        with ExitStack() as leases:
            if graph.executor is not None:
                _run(graph, arena, token, leases)
            elif graph.sequences is not None:
                _feed(graph, arena, token, leases)
    except MeshError as error:
        _log.info("graph %r stays cold: %s", graph.name, error)


def _run(graph: Graph, arena: Arena, token: CancelToken, leases: ExitStack) -> None:
    executor = graph.executor
    assert executor is not None

    def allocate(dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return _lease(dtype, shape, arena, leases)

    inputs = [_zeros(spec, arena, leases) for spec in executor.inputs]
    outputs = len(executor.outputs)
    executor.run(inputs, [None] * outputs, allocate, [True] * outputs, token, 0)


def _feed(graph: Graph, arena: Arena, token: CancelToken, leases: ExitStack) -> None:
    engine = graph.sequences
    assert engine is not None
    bound = {spec.name: _zeros(spec, arena, leases) for spec in engine.bound}
    sequence = engine.open(1, token, 0)
    try:
        for name, buffer in bound.items():
            sequence.bind(name, buffer)
        sequence.feed(np.zeros(1, np.int64), token)
    finally:
        # Before the leases: until it is closed it may read what is bound.
        sequence.close()


def _zeros(spec: TensorSpec, arena: Arena, leases: ExitStack) -> Buffer:
    shape = tuple(1 if size == -1 else size for size in spec.shape)
    return _lease(spec.dtype, shape, arena, leases)


def _lease(dtype: DType, shape: tuple[int, ...], arena: Arena, leases: ExitStack) -> Buffer:
    nbytes = math.prod(shape) * dtype.itemsize
    return leases.enter_context(arena.lease(nbytes, owner=_OWNER, dtype=dtype, shape=shape)).buffer
