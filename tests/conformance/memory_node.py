"""A node in memory: it keeps every promise of `mesh.api.ports` with units written in Python.

Its units answer by simple rules that a test can compute: `vision` describes the bytes it got, or, given a
tensor, gives sums; `llm` repeats the last message word by word; `asr` counts the bytes of a recording as they
come; `tracker` is session-lived and remembers.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, MeshError, NotFound, UsageError
from hailmesh.router.qos import Policy
from hailmesh.router.request import TENSOR, Input, Request
from hailmesh.router.routes import Routes

Unit = Callable[["MemoryNode", Request], AsyncGenerator[Any, None]]


@dataclass
class MemoryAnswer:
    unit: str
    version: str
    digest: str
    body: dict[str, Any]
    tensors: dict[str, Buffer] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        for lease in self.leases:
            lease.release()


def content(part: Input) -> bytes:
    return part.buffer.numpy().tobytes()[: part.size]


def parts(request: Request) -> dict[str, Input]:
    return {part.name: part for part in request.inputs}


def params(request: Request) -> dict[str, Any]:
    part = parts(request).get("params")
    return json.loads(content(part)) if part is not None else {}


async def vision(node: MemoryNode, request: Request) -> AsyncGenerator[Any, None]:
    part = request.inputs[0]
    if part.media_type == TENSOR:
        image = part.buffer.numpy()
        lease = node.arena.lease(4 * 4, owner="reply", dtype=DType.F32, shape=(1, 4))
        lease.buffer.numpy()[:] = [[image.sum(), image.min(), image.max(), image.size]]
        yield {"task": "infer"}, {"scores": lease}
        return
    data = content(part)
    leases = {}
    if params(request).get("embed"):
        leases["embedding"] = node.arena.lease(8, owner="reply", dtype=DType.F32, shape=(2,))
        leases["embedding"].buffer.numpy()[:] = [0.5, -1.0]
    yield (
        {
            "labels": [{"label": "bytes", "score": 1.0}],
            "bytes": len(data),
            "crc": zlib.crc32(data),
            "type": part.media_type,
            "params": params(request),
        },
        leases,
    )


async def llm(node: MemoryNode, request: Request) -> AsyncGenerator[Any, None]:
    given = parts(request)
    options = params(request)
    said = [message["content"] for message in options.get("messages", ())]
    if "prompt" in options:
        said.append(options["prompt"])
    if "text" in given:
        said.append(content(given["text"]).decode())
    prompt = " ".join(said)
    words = said[-1].split(" ")
    limit = options.get("max_tokens", 64)
    finish = "length" if len(words) > limit else "stop"
    spoken: list[str] = []
    for word in words[:limit]:
        if word in options.get("stop", ()):
            finish = "stop"
            break
        spoken.append(word if not spoken else f" {word}")
        if options.get("stream"):
            yield json.dumps({"delta": spoken[-1]}).encode()
        await node.paced()
    usage = {"prompt_tokens": len(prompt.split(" ")), "completion_tokens": len(spoken)}
    yield {"text": "".join(spoken), "finish_reason": finish, "usage": usage, "params": options}, {}


async def asr(node: MemoryNode, request: Request) -> AsyncGenerator[Any, None]:
    part = request.inputs[0]
    grown = asyncio.Event()
    heard = 0
    if part.streamed:
        part.on_growth(lambda size, ended: grown.set())
    while True:
        if part.size > heard:
            heard = part.size
            if params(request).get("stream"):
                yield json.dumps({"delta": f"{heard} bytes. "}).encode()
        if part.ended:
            break
        await grown.wait()
        grown.clear()
    body = {"text": f"{heard} bytes of {part.media_type}", "crc": zlib.crc32(content(part))}
    yield {**body, "params": params(request)}, {}


UNITS: dict[str, tuple[str, Unit]] = {
    "vision": ("image", vision),
    "llm": ("text", llm),
    "asr": ("speech", asr),
}


class MemoryNode:
    """`failing`: errors by unit, raised instead of answering, or after the first chunk for those in
    `failing_late`. `hold`: set it to an Event to make units wait for it; `entered` is set once one does."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.ready = True
        self.failing: dict[str, MeshError] = {}
        self.failing_late: dict[str, MeshError] = {}
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.requests: list[Request] = []
        self.answers: list[MemoryAnswer] = []
        self.policies: dict[str, Policy] = {}
        self.unplugged: list[tuple[str, float]] = []
        self._routes = Routes()
        self._units: dict[str, dict[str, Any]] = {}
        self._listeners: list[asyncio.Queue[dict[str, Any]]] = []
        for name in UNITS:
            self._add(name)

    def _add(self, name: str, *, session_lived: bool = False) -> dict[str, Any]:
        modality = UNITS[name][0] if name in UNITS else "speech"
        self._routes.add(name, "1.0.0", modality)
        f32 = int(DType.F32)
        graphs = {
            "vision": {
                "classify": {
                    "kind": "graph",
                    "inputs": [{"name": "image", "dtype": f32, "shape": [-1, 3, 8, 8]}],
                    "outputs": [{"name": "scores", "dtype": f32, "shape": [-1, 4]}],
                }
            },
            "llm": {"decoder": {"kind": "sequence", "context": 2048, "vocabulary": 49152}},
        }
        unit = {
            "name": name,
            "version": "1.0.0",
            "digest": f"sha256:{name:0>64}",
            "modality": modality,
            "state": "active",
            "reason": "",
            "slots": 2,
            "session_lived": session_lived,
            "since": 1_700_000_000.5,
            "restarts": 0,
            "graphs": graphs.get(name, {}),
        }
        self._units[name] = unit
        for queue in self._listeners:
            queue.put_nowait({"event": "unit", "unit": name, "state": "active", "time": time.time()})
        return unit

    @property
    def listeners(self) -> int:
        """How many follow `events`."""
        return len(self._listeners)

    async def paced(self) -> None:
        """Where a unit's work would take its time."""
        if self.hold is not None:
            self.entered.set()
            await self.hold.wait()

    async def handle(self, request: Request) -> MemoryAnswer:
        answer = None
        async for event in self.stream(request):
            if isinstance(event, MemoryAnswer):
                answer = event
        assert answer is not None
        return answer

    async def stream(self, request: Request) -> AsyncGenerator[bytes | MemoryAnswer, None]:
        self.requests.append(request)
        name = request.unit
        began = time.monotonic_ns()
        if name in self.failing:
            raise self.failing[name]
        run = UNITS[name][1](self, request)
        try:
            while True:
                try:
                    event = await self._until_cancelled(request, run.__anext__())
                except StopAsyncIteration:
                    return
                if isinstance(event, bytes):
                    yield event
                    if name in self.failing_late:
                        raise self.failing_late[name]
                    continue
                if name != "llm":
                    await self._until_cancelled(request, self.paced())
                body, leases = event
                timings = dict.fromkeys(("queue", "sandbox", "bridge", "kernel", "gate"), 0.5)
                timings["total"] = (time.monotonic_ns() - began) / 1e6
                answer = MemoryAnswer(
                    name,
                    "1.0.0",
                    self._units[name]["digest"],
                    body,
                    {key: lease.buffer for key, lease in leases.items()},
                    timings,
                    list(leases.values()),
                )
                self.answers.append(answer)
                yield answer
                return
        finally:
            await run.aclose()

    async def _until_cancelled(self, request: Request, work: Any) -> Any:
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        forget = request.token.on_cancel(lambda: gone.done() or gone.set_result(None))
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait(
                {task, gone}, timeout=max(0, request.token.remaining()), return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                return task.result()
            if gone in done:
                raise Cancelled("the request was cancelled")
            raise DeadlineExceeded("the deadline passed while the request ran")
        finally:
            forget()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def session(self, unit: str) -> AsyncIterator[MemorySession]:
        if not self.unit(unit)["session_lived"]:
            raise UsageError(f"unit {unit} lives for one request")
        session = MemorySession(self)
        try:
            yield session
        finally:
            session.ended = True

    def route(self, name: str) -> str:
        return self._routes.pick(name).unit

    def policy(self, unit: str) -> Policy:
        return self.policies.get(unit, Policy())

    def unit(self, name: str) -> dict[str, Any]:
        if name not in self._units:
            raise NotFound(f"no unit '{name}'; there are: {', '.join(self._units)}")
        return self._units[name]

    def units(self) -> list[dict[str, Any]]:
        return list(self._units.values())

    async def plug(self, ref: str) -> dict[str, Any]:
        if ref == "nothing":
            raise NotFound("no image 'nothing' in the store")
        return self._add(ref, session_lived=ref == "tracker")

    async def unplug(self, name: str, drain: float) -> None:
        self.unit(name)
        del self._units[name]
        self._routes.remove(name)
        self.unplugged.append((name, drain))

    def describe(self) -> dict[str, Any]:
        return {"version": "0", "uptime": 1.0, "ready": self.ready}

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    def logs(self, unit: str) -> list[dict[str, Any]]:
        self.unit(unit)
        return [{"time": 1.0, "level": "info", "request": "r", "line": "hello"}]


class MemorySession:
    """Counts its messages, and remembers how many bytes it has heard."""

    def __init__(self, node: MemoryNode) -> None:
        self.ended = False
        self._node = node
        self._messages = 0
        self._bytes = 0

    async def send(self, request: Request) -> MemoryAnswer:
        self._node.requests.append(request)
        self._messages += 1
        self._bytes += request.inputs[0].size
        if request.inputs[0].size == 0:
            raise UsageError("an empty message")
        body = {
            "messages": self._messages,
            "bytes": self._bytes,
            "type": request.inputs[0].media_type,
            "params": params(request),
        }
        return MemoryAnswer(request.unit, "1.0.0", "", body, {}, {"total": 0.1})


def image_tensor() -> np.ndarray:
    """An input that the memory node's `vision` takes."""
    return np.arange(3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8)
