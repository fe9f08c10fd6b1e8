"""The units of the node: from an image in the store to a version that serves, and out again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import structlog

from hailmesh.hail.errors import MeshError, NotFound
from hailmesh.mesh.events import Events
from hailmesh.mesh.loader import Loader
from hailmesh.mesh.reference import Case
from hailmesh.mesh.slots import Slots
from hailmesh.mesh.state import ActiveUnits
from hailmesh.mesh.version import State, UnitVersion
from hailmesh.mesh.workers import Worker
from hailmesh.router.routes import Routes

log = structlog.get_logger()

RESTART_FIRST = 0.1
RESTART_LONGEST = 30.0
"""Seconds between the death of a worker and its restart, if the one before came up less than RESTART_LONGEST
ago; doubled each time that is so again."""


class Units:
    """Every unit has at most one active version; others of it may be starting or draining."""

    def __init__(
        self,
        *,
        loader: Loader,
        routes: Routes,
        slots: Slots,
        events: Events,
        active: ActiveUnits,
        drain: float,
    ) -> None:
        self.routes = routes
        self._loader = loader
        self._slots = slots
        self._events = events
        self._saved = active
        self._drain = drain
        self._active: dict[str, UnitVersion] = {}
        self._others: list[UnitVersion] = []
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._expected: set[str] = set()
        self._stopping = False

    @property
    def ready(self) -> bool:
        """Whether every unit that should serve does."""
        return not self._expected and all(version.worker.alive for version in self._active.values())

    def versions(self) -> list[UnitVersion]:
        return [*self._active.values(), *self._others]

    def serving(self, name: str) -> UnitVersion:
        """The active version of a unit; NotFound lists what there is."""
        version = self._active.get(name)
        if version is None:
            raise NotFound(f"no unit '{name}'; there are: {', '.join(self._active) or 'none, plug one'}")
        return version

    async def serves(self, ref: str) -> bool:
        """Whether the image of this name is the active version of its unit. NotFound."""
        image = await self._loader.image(ref)
        active = self._active.get(image.name)
        return active is not None and active.digest == image.digest

    def reference_cases(self, names: tuple[str, ...]) -> list[Case]:
        """The golden cases of these units' images, as far as they are active, in this order."""
        active = [self._active[name] for name in names if name in self._active]
        return [case for version in active for case in self._loader.cases(version.image)]

    def known(self, name: str) -> None:
        """NotFound unless a version of the unit is there, in whatever state."""
        if not any(version.name == name for version in self.versions()):
            self.serving(name)

    async def restore(self) -> None:
        """Brings back the units that were active when the node ended. One that fails doesn't keep the
        others from serving; the log says why, and it is tried again at the next start, or until it is
        unplugged."""
        saved = self._saved.items()
        self._expected = {name for name, _ in saved}
        results = await asyncio.gather(
            *(self._swap(digest, name) for name, digest in saved), return_exceptions=True
        )
        self._expected.clear()
        for (name, _), result in zip(saved, results, strict=True):
            if isinstance(result, MeshError):
                log.error("a unit did not come back", unit=name, reason=str(result))
            elif isinstance(result, BaseException):
                raise result

    async def plug(self, ref: str) -> UnitVersion:
        """Loads an image of the store and moves its unit's traffic to it; the version that served before
        drains. If anything fails, that one serves on."""
        version = await self._swap(ref)
        self._saved.set(version.name, version.digest)
        return version

    async def unplug(self, name: str, drain: float) -> None:
        """Takes the unit out of service; its running requests get `drain` seconds. One that failed to come
        up is forgotten. NotFound."""
        if name not in self._active and name in self._saved:
            self._saved.remove(name)
            self._forget_failed(name)
            return
        version = self.serving(name)
        self._saved.remove(name)
        del self._active[name]
        self.routes.remove(name)
        self._slots.remove(name)
        await self._retire(version, drain)

    async def stop(self) -> None:
        """Ends all workers at once."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(version.stop() for version in self.versions()))

    async def _swap(self, ref: str, name: str | None = None) -> UnitVersion:
        version = UnitVersion(await self._loader.image(ref), self._changed)
        async with self._locks.setdefault(version.name, asyncio.Lock()):
            self._forget_failed(version.name)
            self._others.append(version)
            try:
                await self._loader.load(version, self._died)
            except BaseException as error:
                version.fail(str(error) or type(error).__name__)
                await version.stop()
                raise
            self._others.remove(version)
            self._activate(version)
        return version

    def _activate(self, version: UnitVersion) -> None:
        before = self._active.get(version.name)
        self._active[version.name] = version
        self.routes.add(version.name, version.version, version.modality)
        self._slots.add(version.name, version.version, version.slots)
        version.move(State.ACTIVE)
        if before is not None:
            self._spawn(self._retire(before, self._drain))

    async def _retire(self, version: UnitVersion, drain: float) -> None:
        """Lets what runs finish, then ends the worker and gives its memory back."""
        self._others.append(version)
        version.move(State.DRAINING)
        await version.drained(drain)
        await version.stop()
        version.move(State.RETIRED)
        self._others.remove(version)

    def _died(self, version: UnitVersion, worker: Worker) -> None:
        """A worker ended. If nobody asked it to, its version gets another one."""
        if self._stopping or version.stopping or version.state is not State.ACTIVE:
            return
        if version.worker is worker:
            log.error("worker ended unexpectedly", unit=version.name, pid=worker.pid)
            self._events.publish("worker-died", unit=version.name, version=version.version, pid=worker.pid)
            version.restarting = self._spawn(self._restart(version))

    async def _restart(self, version: UnitVersion) -> None:
        if time.monotonic() - version.came_up > RESTART_LONGEST:
            version.pause = 0.0
        while version.state is State.ACTIVE and not version.stopping:
            await asyncio.sleep(version.pause)
            version.pause = min(max(RESTART_FIRST, 2 * version.pause), RESTART_LONGEST)
            version.restarts += 1
            try:
                await self._loader.reload(version, self._died)
            except MeshError as error:
                version.reason = f"restart failed: {error}"
                log.error("restart failed", unit=version.name, reason=str(error))
            else:
                version.came_up = time.monotonic()
                version.reason = ""
                self._events.publish("worker-restarted", unit=version.name, version=version.version)
                return

    def _forget_failed(self, name: str) -> None:
        self._others = [
            other for other in self._others if other.name != name or other.state is not State.FAILED
        ]

    def _changed(self, version: UnitVersion) -> None:
        details = {"unit": version.name, "version": version.version, "digest": version.digest}
        self._events.publish("unit", state=version.state.value, reason=version.reason, **details)
        log.info("unit", state=version.state.value, **details)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
