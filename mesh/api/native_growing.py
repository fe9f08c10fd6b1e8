"""`/v1/invoke?streamed=true`: the unit starts while its input is still being uploaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hailmesh.hail.errors import Cancelled, MeshError, UsageError
from hailmesh.mesh.api.body import Sink, chunks, declared_length
from hailmesh.mesh.api.call import Call
from hailmesh.mesh.api.intake import PARAMS, Intake
from hailmesh.mesh.api.multipart import Form
from hailmesh.mesh.api.native_body import content_type, default_type, params_input, params_of, streaming
from hailmesh.mesh.api.native_result import reply_one
from hailmesh.mesh.api.native_stream import stream_all
from hailmesh.mesh.api.run import handle
from hailmesh.router.request import Input, Request

LONGEST = 3600.0
"""Seconds; beyond any deadline."""


async def invoke_growing(call: Call, name: str, unit: str) -> None:
    """As `invoke`, for one modality. In a multipart body its part must be the last."""
    with Intake(call) as intake:
        upload = _Upload(call, intake, name)
        entry = await upload.begin()
        params = params_of(call, (name,), upload.params).get(name, {})
        request = intake.request(unit, [entry, *params_input(intake, {**params, **streaming(call)})])
        reader = asyncio.ensure_future(upload.rest(request))
        try:
            if call.flag("stream"):
                await stream_all(call, {name: request})
            else:
                answer = await handle(call, request)
                try:
                    await reply_one(call, name, answer, call.elapsed_ms)
                finally:
                    answer.close()
        except Cancelled:
            if upload.error is not None:
                raise upload.error from None
            raise
        finally:
            # The reader writes into the lease, so it must have ended before the lease does.
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


class _Upload:
    """Reads the body up to the start of the input, and later the rest. `error`: why the rest was unusable."""

    def __init__(self, call: Call, intake: Intake, name: str) -> None:
        self.params: str | None = None
        self.error: MeshError | None = None
        self._call = call
        self._intake = intake
        self._name = name
        self._form: Form | None = None
        self._sink: Sink | None = None
        # Whoever speaks may pause: the request's deadline bounds the upload.
        self._chunks: AsyncIterator[bytes] = chunks(call, idle=LONGEST)
        self._received = 0

    async def begin(self) -> Input:
        """The input, once it has begun to arrive."""
        whole, media_type = content_type(self._call)
        room = self._room(declared_length(self._call))
        if media_type != "multipart/form-data":
            sink = self._sink = self._intake.sink(room)
            return self._intake.growing(self._name, whole or default_type(self._name), sink)

        def place(name: str) -> Sink | None:
            if name == PARAMS:
                if self._sink is not None:
                    raise UsageError(f"with streamed=true, params must come before the part '{self._name}'")
                return None
            if name != self._name:
                raise UsageError(f"with streamed=true, expected the one part '{self._name}', found '{name}'")
            self._sink = self._intake.sink(max(1, room - self._received))
            return self._sink

        form = self._form = Form(whole, place)
        async for chunk in self._chunks:
            form.feed(chunk)
            self._received += len(chunk)
            if self._sink is not None:
                self.params = form.text(PARAMS)
                part = form.parts[self._name]
                return self._intake.growing(
                    self._name, part.media_type or default_type(self._name), self._sink
                )
        form.finish()
        raise UsageError(f"modality '{self._name}' was asked for, but the body has no part of that name")

    async def rest(self, request: Request) -> None:
        """Writes what still comes; then waits for the client to leave. Cancels the request if it does, or if
        the rest is unusable."""
        try:
            await self._grow(request.inputs[0])
            while (await self._call.receive())["type"] != "http.disconnect":
                pass
        except Cancelled:
            pass
        except MeshError as error:
            self.error = error
        request.token.cancel()

    async def _grow(self, entry: Input) -> None:
        sink, form = self._sink, self._form
        assert sink is not None
        if form is not None and sink.size:
            entry.grow(sink.size, form.parts[self._name].ended)
        async for chunk in self._chunks:
            if form is None:
                sink.write(chunk)
                entry.grow(sink.size)
            else:
                form.feed(chunk)
                entry.grow(sink.size, form.parts[self._name].ended)
        if form is not None:
            form.finish()
        entry.grow(sink.size, ended=True)

    def _room(self, length: int | None) -> int:
        """Bytes that may come: as announced, or else as many as the node takes."""
        limit = self._call.service.settings.max_body
        return limit if length is None or self._call.header(b"content-encoding") is not None else length
