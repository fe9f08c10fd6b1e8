"""Loading a unit: blobs verified, module compiled, memory reserved, worker started, in that order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hailmesh.hail.arena import Arena
from hailmesh.hail.gate import ROWS, Gate
from hailmesh.hail.lane import Lanes
from hailmesh.mesh.config import Config
from hailmesh.mesh.reference import Case
from hailmesh.mesh.version import State, UnitVersion
from hailmesh.mesh.workers import Worker
from hailmesh.oci.image import UnitImage
from hailmesh.oci.image import load as load_image
from hailmesh.oci.store import Store
from hailmesh.sandboxes.aot import ArtifactCache
from hailmesh.sandboxes.protocol import GraphSpec, Limits, LoadSpec

if TYPE_CHECKING:
    from hailmesh.oci.descriptor import Descriptor

RUNTIMES = 512 << 20
"""Bytes that a worker's runtimes may take beside weights and sandboxes."""

OnDeath = Callable[[UnitVersion, Worker], None]
OnLog = Callable[[UnitVersion, dict[str, Any], str], None]


class Loader:
    """Knows what a worker needs; knows nothing of which version serves."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        artifacts: ArtifactCache,
        arena: Arena,
        gate: Gate,
        lanes: Lanes,
        on_log: OnLog,
    ) -> None:
        self._config = config
        self._store = store
        self._artifacts = artifacts
        self._arena = arena
        self._gate = gate
        self._lanes = lanes
        self._on_log = on_log
        self._rows = set(range(1, ROWS))

    async def image(self, ref: str) -> UnitImage:
        """NotFound, or ImageError if it isn't what it says."""
        return await asyncio.to_thread(load_image, self._store, ref)

    def cases(self, image: UnitImage) -> list[Case]:
        """The golden cases that the image carries, with their inputs."""
        return [
            Case(
                image.name,
                image.modality,
                case.name,
                case.media_type,
                case.text.encode() if case.file is None else self._store.read(case.file, case.file.size),
                dict(case.params),
                [dict(expectation) for expectation in case.expect],
            )
            for case in image.selftest
        ]

    async def load(self, version: UnitVersion, on_death: OnDeath) -> None:
        """Takes a version from `pulled` to `loaded`. Whatever fails raises; the caller stops the version."""
        with _open_all() as blobs:
            image = version.image
            graphs = await asyncio.to_thread(self._graphs, image, blobs)
            version.move(State.VERIFIED)
            module = await self._compiled(image, blobs)
            version.move(State.COMPILED)
            version.span = self._arena.span(image.arena_bytes, owner=f"{version.name}@{version.version}")
            row = self._rows.pop()
            version.give_row_back = lambda: self._free_row(row)
            await self._start(version, self._spec(version, module, graphs, row), blobs, on_death)
        version.move(State.LOADED)

    async def reload(self, version: UnitVersion, on_death: OnDeath) -> None:
        """A new worker for a version whose worker died; memory and gate row stay its own."""
        before = version.worker.spec
        self._gate.clear_row(before.gate_row)
        with _open_all() as blobs:
            graphs = await asyncio.to_thread(self._graphs, version.image, blobs)
            module = await self._compiled(version.image, blobs)
            spec = self._spec(version, module, graphs, before.gate_row)
            await self._start(version, spec, blobs, on_death)

    async def _start(self, version: UnitVersion, spec: LoadSpec, blobs: list[int], on_death: OnDeath) -> None:
        worker = Worker(
            spec,
            on_log=lambda header, line: self._on_log(version, header, line),
            on_exit=lambda ended: on_death(version, ended),
        )
        try:
            await worker.start((self._arena.fd, *blobs))
            await worker.loaded()
        except BaseException:
            await worker.stop(0.0)
            raise
        version.worker = worker

    async def _compiled(self, image: UnitImage, blobs: list[int]) -> int:
        """A descriptor of the module's native code, from the cache or fresh from the compiler child."""
        wasm = await asyncio.to_thread(self._open, image.module, blobs)
        native = await self._artifacts.native(image.module.digest, wasm)
        blobs.append(native)
        return native

    def _graphs(self, image: UnitImage, blobs: list[int]) -> dict[str, GraphSpec]:
        specs = {}
        for name, graph in image.graphs.items():
            fd = self._open(graph.file, blobs)
            tokenizer = self._open(graph.tokenizer, blobs) if graph.tokenizer is not None else -1
            specs[name] = GraphSpec(fd, graph.kind, tokenizer, graph.context, graph.slots)
        return specs

    def _open(self, blob: Descriptor, blobs: list[int]) -> int:
        fd = self._store.open_verified(blob)
        blobs.append(fd)
        return fd

    def _spec(self, version: UnitVersion, module: int, graphs: dict[str, GraphSpec], row: int) -> LoadSpec:
        image, span = version.image, version.span
        assert span is not None, "memory is reserved before a worker starts"
        lane = self._lanes.of(image.lane)
        return LoadSpec(
            unit=image.name,
            version=image.version,
            digest=image.digest,
            module_fd=module,
            module_digest=image.module.digest,
            arena_fd=self._arena.fd,
            arena_offset=span.buffer.offset,
            arena_size=span.buffer.nbytes,
            gate_row=row,
            config=image.config,
            graphs=graphs,
            kernels=image.kernels,
            limits=Limits(memory=image.guest_bytes),
            memory=_graph_bytes(image),
            slots=image.slots,
            lane=lane.name,
            cores=lane.cores,
            wide=lane.wide,
            threads=self._config.threads or image.threads or lane.threads,
            spin=self._config.spin and lane.wide,
            session_lived=image.session_lived,
        )

    def _free_row(self, row: int) -> None:
        self._gate.clear_row(row)
        self._rows.add(row)


def _graph_bytes(image: UnitImage) -> int:
    """How much memory loading and running the graphs may take: about twice the weights is usual (225 MB for
    105), more while they load. Far beyond that a model is hostile: 66 bytes can ask for gigabytes."""
    return 4 * image.weights + RUNTIMES


@contextmanager
def _open_all() -> Iterator[list[int]]:
    """A list whose descriptors are closed at the end; a worker has inherited its own by then."""
    blobs: list[int] = []
    try:
        yield blobs
    finally:
        for fd in blobs:
            os.close(fd)
