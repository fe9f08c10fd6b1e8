"""`WebSocket /v1/units/{name}/session`: a client's stream to one session-lived instance.

The client sends messages; each gets one answer, in order.

    text    {"inputs": {"text": "…"}, "params": {…}}      inputs as in `/v1/invoke`'s JSON body
    text    {"type": "audio/wav", "params": {…}}          describes the binary messages that follow
    binary  the bytes of one input of the unit's modality

    text    {"result": {…, "unit", "version", "timings"}}
    text    {"error": {"code", "message"}, "status": 400}
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from hailmesh.hail.errors import Cancelled, MeshError, TooLarge, UsageError
from hailmesh.mesh.api.access import check
from hailmesh.mesh.api.call import Call, Service, dumps
from hailmesh.mesh.api.fields import optional, parse_object
from hailmesh.mesh.api.intake import PARAMS, Intake
from hailmesh.mesh.api.native_body import default_type, from_text, params_input
from hailmesh.mesh.api.native_result import failed, result
from hailmesh.mesh.api.ports import Session
from hailmesh.mesh.api.run import counted
from hailmesh.mesh.api.shapes import Family
from hailmesh.router.request import Input

log = structlog.get_logger()


class SessionDoor:
    """The ASGI application behind the path. A refusal before the first message is a refused handshake."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        call = Call(scope, receive, send, self._service, Family.NATIVE)
        try:
            call.tenant = check(call.header(b"authorization"), "infer", self._service.settings)
            unit = call.node.route(call.path_params["name"])
            modality = str(call.node.unit(unit)["modality"])
            async with call.node.session(unit) as session:
                await socket.accept()
                await _Conversation(call, socket, session, unit, modality).run()
        except (WebSocketDisconnect, Cancelled):
            log.debug("a session's client went away", request=call.id)
        except MeshError as error:
            await socket.close(1008, str(error)[:120])


class _Conversation:
    """One accepted session."""

    def __init__(self, call: Call, socket: WebSocket, session: Session, unit: str, modality: str) -> None:
        self._call = call
        self._socket = socket
        self._session = session
        self._unit = unit
        self._modality = modality
        self._type = default_type(modality)
        self._params: dict[str, Any] = {}
        self._count = itertools.count(1)

    async def run(self) -> None:
        """Until the client closes."""
        incoming = asyncio.ensure_future(self._socket.receive())
        try:
            while True:
                message = await incoming
                if message["type"] == "websocket.disconnect":
                    return
                incoming = asyncio.ensure_future(self._socket.receive())
                answer = await self._answer(message, incoming)
                if answer is not None:
                    await self._socket.send_text(dumps(answer).decode())
        finally:
            incoming.cancel()

    async def _answer(self, message: Any, following: asyncio.Future[Any]) -> dict[str, Any] | None:
        try:
            with Intake(self._call) as intake:
                inputs = self._inputs(intake, message)
                if inputs is None:
                    return None
                request = intake.request(self._unit, inputs, suffix=f".{next(self._count)}")

                def left(future: asyncio.Future[Any]) -> None:
                    if not future.cancelled() and future.result()["type"] == "websocket.disconnect":
                        request.token.cancel()

                following.add_done_callback(left)
                try:
                    answer = await counted(self._call, request, self._session.send(request))
                finally:
                    following.remove_done_callback(left)
                try:
                    return {"result": result(answer)}
                finally:
                    answer.close()
        except Cancelled:
            raise
        except MeshError as error:
            return failed(self._call, error)

    def _inputs(self, intake: Intake, message: Any) -> list[Input] | None:
        """The message's inputs, None if it only describes those that follow."""
        data = message.get("bytes")
        if data is not None:
            self._bounded(len(data))
            return [intake.data(self._modality, self._type, data), *params_input(intake, self._params)]
        text = message.get("text") or ""
        self._bounded(len(text))
        body = parse_object(text.encode(), "the message")
        params = optional(body, PARAMS, dict) or {}
        inputs = optional(body, "inputs", dict)
        if inputs is None:
            self._type = optional(body, "type", str) or self._type
            self._params = params
            return None
        if not inputs or not all(isinstance(value, str) for value in inputs.values()):
            raise UsageError('inputs: expected an object of strings, like {"text": "…"}')
        parts = [from_text(intake, name, value) for name, value in inputs.items()]
        return [*parts, *params_input(intake, {**self._params, **params})]

    def _bounded(self, size: int) -> None:
        limit = self._call.service.settings.max_body
        if size > limit:
            raise TooLarge(f"the message has {size} bytes, this node takes {limit} (max_body)")
