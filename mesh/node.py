"""The node: every request's story, told once."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import structlog

from hailmesh import __version__
from hailmesh.hail.arena import Arena
from hailmesh.hail.device import Choice, choose
from hailmesh.hail.errors import UnitFault, UsageError
from hailmesh.hail.lane import Lanes
from hailmesh.mesh.answer import Answer, parse_body, tensors_of
from hailmesh.mesh.config import Config
from hailmesh.mesh.events import Events, Logs
from hailmesh.mesh.ledger import Ledger
from hailmesh.mesh.reference import Case
from hailmesh.mesh.slots import Slots
from hailmesh.mesh.units import Units
from hailmesh.mesh.version import UnitVersion
from hailmesh.mesh.workers import Reply, Worker
from hailmesh.router.qos import Policy
from hailmesh.router.request import Input, Request
from hailmesh.sandboxes.protocol import Job, Part

log = structlog.get_logger()


class Node:
    """What `mesh.wiring` puts together. All calls are made on the node's one event loop."""

    def __init__(
        self,
        *,
        config: Config,
        arena: Arena,
        lanes: Lanes,
        units: Units,
        slots: Slots,
        events: Events,
        logs: Logs,
    ) -> None:
        self.config = config
        self.arena = arena
        self._lanes = lanes
        self._units = units
        self._slots = slots
        self._events = events
        self._logs = logs
        self._ledger = Ledger(arena, units)
        self._since = time.time()
        self._device: Choice | None = None

    async def handle(self, request: Request) -> Answer:
        """Admits, queues, runs. Any MeshError; Cancelled soon after the request's token is cancelled."""
        async with aclosing(self.stream(request)) as events:
            return await _last(request, events)

    async def stream(self, request: Request, session: str = "") -> AsyncGenerator[bytes | Answer, None]:
        """Chunks, as the unit emitted them, then exactly one Answer. Errors as for `handle`. Closing the
        iterator cancels the request."""
        answer = None
        async with self._slots.slot(request) as waited:
            version = self._units.serving(request.unit)
            request.retain()
            with (
                version.borrowed(),
                version.worker.job(_job(request, session), request.token, request.release) as events,
            ):
                _forward_growth(request, version.worker)
                async for event in events:
                    if isinstance(event, Reply):
                        answer = self._answer(request, version, event, waited)
                    else:
                        yield event
        if answer is not None:
            yield answer

    @asynccontextmanager
    async def session(self, unit: str) -> AsyncIterator[Session]:
        """An instance that lives until the context ends. UsageError if the unit isn't session-lived."""
        version = self._units.serving(self.route(unit))
        if not version.session_lived:
            raise UsageError(
                f"unit {version.name} lives for one request; a session needs a session-lived unit"
            )
        session = Session(self, uuid.uuid4().hex)
        with version.borrowed():
            try:
                yield session
            finally:
                version.worker.close_session(session.id)

    def _answer(self, request: Request, version: UnitVersion, reply: Reply, waited: float) -> Answer:
        job_id, worker = request.id, version.worker
        release = None
        if reply.tensors:
            version.borrow()

            def release() -> None:
                worker.release(job_id)
                version.give_back()
        else:
            worker.release(job_id)
        timings = {"queue": waited * 1e3, **{name: us / 1e3 for name, us in reply.stages.items()}}
        timings["total"] = (time.monotonic_ns() - request.arrival_ns) / 1e6
        rounded = {name: round(ms, 3) for name, ms in timings.items()}
        answer = Answer(version.name, version.version, version.digest, {}, {}, rounded, release)
        try:
            answer.body = parse_body(version.name, reply.body)
            answer.tensors = tensors_of(self.arena, reply)
        except BaseException:
            answer.close()
            raise
        return answer

    @property
    def ready(self) -> bool:
        return self._units.ready

    def route(self, name: str) -> str:
        """The unit that serves a modality, alias or unit name; NotFound lists what there is."""
        return self._units.routes.pick(name).unit

    def policy(self, unit: str) -> Policy:
        return self._units.serving(unit).policy

    def units(self) -> list[dict[str, Any]]:
        """For each unit, and each version that starts or drains, what `GET /v1/units` shows."""
        return [version.describe() for version in self._units.versions()]

    def unit(self, name: str) -> dict[str, Any]:
        return self._units.serving(name).describe()

    async def plug(self, ref: str) -> dict[str, Any]:
        """Loads a unit from the store and moves the traffic to it; returns once it is active."""
        return (await self._units.plug(ref)).describe()

    async def unplug(self, name: str, drain: float | None = None) -> None:
        """Lets running requests finish for at most `drain` seconds, then removes the unit."""
        await self._units.unplug(name, self.config.drain if drain is None else drain)

    def describe(self) -> dict[str, Any]:
        """What `GET /v1/node` shows."""
        return {
            "version": __version__,
            "uptime": round(time.time() - self._since, 3),
            "ready": self.ready,
            "device": None if self._device is None else _plain(self._device),
            "lanes": {
                lane.name: {"cores": lane.cores, "wide": lane.wide}
                for lane in (self._lanes.urgent, self._lanes.best_effort)
            },
            **self._ledger.describe(),
        }

    def events(self) -> AsyncIterator[dict[str, Any]]:
        return self._events.subscribe()

    def logs(self, unit: str) -> list[dict[str, Any]]:
        self._units.known(unit)
        return self._logs.of(unit)

    async def restore(self) -> None:
        """Brings back the units that were active when the node last ended."""
        await self._units.restore()

    async def probe(self) -> None:
        """Looks at the device, which takes a moment; `describe` shows it from then on."""
        asked = None if self.config.device == "auto" else self.config.device
        self._device = await asyncio.to_thread(choose, self.arena, asked)
        if self._device.fallback:
            log.warning("device fallback", device=self._device.chosen, reason=self._device.reason)

    async def serves(self, ref: str) -> bool:
        """Whether the image of this name is the active version of its unit. NotFound."""
        return await self._units.serves(ref)

    def reference_cases(self, units: tuple[str, ...]) -> list[Case]:
        """The golden cases of these units' images, as far as they are active, in this order."""
        return self._units.reference_cases(units)

    async def stop(self) -> None:
        """Ends the workers. Requests inside them fail."""
        await self._units.stop()


class Session:
    """A client's stream to one session-lived instance."""

    def __init__(self, node: Node, session_id: str) -> None:
        self.id = session_id
        self._node = node
        self._turn = asyncio.Lock()

    async def send(self, request: Request) -> Answer:
        """One message; the instance answers one at a time."""
        async with self._turn, aclosing(self._node.stream(request, self.id)) as events:
            return await _last(request, events)


async def _last(request: Request, events: AsyncIterator[bytes | Answer]) -> Answer:
    async for event in events:
        if isinstance(event, Answer):
            return event
    raise UnitFault(f"unit {request.unit} gave no answer")


def _plain(choice: Choice) -> dict[str, Any]:
    info = choice.device.probe()
    return {
        "name": choice.chosen,
        "reason": choice.reason,
        "fallback": choice.fallback,
        "model": info.model,
        "compute_units": info.compute_units,
        "memory": info.memory,
        "copy_bandwidth": round(info.copy_bandwidth),
        "integrated": info.integrated,
    }


def _job(request: Request, session: str) -> Job:
    parts = tuple(_part(entry) for entry in request.inputs)
    return Job(request.id, parts, request.deadline_ns, request.level, secrets.randbits(63), session)


def _part(entry: Input) -> Part:
    dtype = None if entry.dtype is None else int(entry.dtype)
    return Part(
        entry.name,
        entry.media_type,
        entry.buffer.offset,
        entry.size,
        entry.room,
        entry.streamed,
        dtype,
        entry.shape,
    )


def _forward_growth(request: Request, worker: Worker) -> None:
    """Tells the worker as streamed inputs grow."""
    for index, entry in enumerate(request.inputs):
        if entry.streamed:
            entry.on_growth(partial(worker.part, request.id, index))
