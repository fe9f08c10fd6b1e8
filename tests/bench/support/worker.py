"""A reference unit in a worker process of its own, without a node around it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import orjson
from bench.support.node import require_images
from bench.support.paths import STATE

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import DType
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.image import UnitImage
from hailmesh.oci.image import load as load_image
from hailmesh.oci.store import Store
from hailmesh.sandboxes.aot import ArtifactCache
from hailmesh.sandboxes.client import Running, WorkerClient
from hailmesh.sandboxes.protocol import GraphSpec, Job, Limits, LoadSpec, Part

_BURST = 0.2
_PARTS = 64 << 20
_MINUTE = 60_000_000_000


class UnitWorker:
    """Sends requests to a worker; what they need of the arena is leased until `close`."""

    def __init__(self, client: WorkerClient, arena: Arena, stack: ExitStack) -> None:
        self.client = client
        self._arena = arena
        self._stack = stack
        self._ids = itertools.count()

    def part(self, name: str, media_type: str, content: bytes) -> Part:
        """An input, in the arena for good: it can be sent again and again."""
        lease = self._stack.enter_context(self._arena.lease(len(content), owner="parts"))
        view = self._arena.view(lease.buffer.offset, len(content), DType.U8, (len(content),))
        view.numpy()[...] = np.frombuffer(content, np.uint8)
        return Part(name, media_type, lease.buffer.offset, len(content), len(content))

    def options(self, **options: Any) -> Part:
        """A request's options."""
        return self.part("params", "application/json", orjson.dumps(options))

    def start(self, *parts: Part) -> Running:
        """A request with a minute's time."""
        return self.client.start(Job(str(next(self._ids)), parts, time.monotonic_ns() + _MINUTE))


@contextmanager
def worker(unit: str, *, threads: int) -> Iterator[UnitWorker]:
    """The unit's latest image, on all cores (wide mode), its graphs with that many threads."""
    require_images(unit)
    store = Store(STATE / "store")
    image = load_image(store, unit)
    with ExitStack() as stack:
        arena = stack.enter_context(Arena.create(int((image.arena_bytes + _PARTS) / (1 - _BURST))))
        stack.enter_context(arena.lease(GRANULE, owner="gate"))
        spec = _spec(store, image, arena, threads, stack)
        client = stack.enter_context(WorkerClient(spec))
        yield UnitWorker(client, arena, stack)


def _spec(store: Store, image: UnitImage, arena: Arena, threads: int, stack: ExitStack) -> LoadSpec:
    def opened(blob: Descriptor) -> int:
        return kept(store.open_verified(blob))

    def kept(fd: int) -> int:
        stack.callback(os.close, fd)
        return fd

    span = stack.enter_context(arena.span(image.arena_bytes, owner=image.name))
    native = kept(ArtifactCache(STATE / "artifacts").open(image.module.digest, opened(image.module)))
    graphs = {
        name: GraphSpec(
            opened(graph.file),
            graph.kind,
            -1 if graph.tokenizer is None else opened(graph.tokenizer),
            graph.context,
            graph.slots,
        )
        for name, graph in image.graphs.items()
    }
    return LoadSpec(
        unit=image.name,
        version=image.version,
        digest=image.digest,
        module_fd=native,
        module_digest=image.module.digest,
        arena_fd=arena.fd,
        arena_offset=span.buffer.offset,
        arena_size=span.buffer.nbytes,
        gate_row=1,
        config=image.config,
        graphs=graphs,
        kernels=image.kernels,
        limits=Limits(memory=image.guest_bytes),
        slots=image.slots,
        lane=image.lane,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        wide=True,
        threads=threads,
        spin=True,
        session_lived=image.session_lived,
    )
