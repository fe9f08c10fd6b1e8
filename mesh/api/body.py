"""Request bodies: as they come from the socket, decompressed and bounded, into arena leases."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import zlib
from collections.abc import AsyncIterator

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.errors import Cancelled, TooLarge, Unsupported, UsageError
from hailmesh.mesh.api.call import Call, Message
from hailmesh.mesh.errors import Stalled

OWNER = "request"
FIRST_ROOM = 256 << 10
"""Bytes leased for a body whose length nobody has said; doubled as it grows."""
WASTE = 1 << 20
"""A lease with that many bytes to spare, and less than half full, is exchanged for one that fits."""
INFLATE_STEP = 1 << 20
IDLE = 30.0
"""Seconds that a client may pause in the middle of a body, while leases wait for the rest."""


def declared_length(call: Call) -> int | None:
    """Content-Length; TooLarge before a byte is read if it is over the limit. None if chunked."""
    text = call.header(b"content-length")
    if text is None:
        return None
    if not text.isdecimal():
        raise UsageError(f"Content-Length: expected a number, found '{text}'")
    length = int(text)
    limit = call.service.settings.max_body
    if length > limit:
        raise TooLarge(f"the body has {length} bytes, this node takes {limit} (max_body)")
    return length


async def chunks(call: Call, idle: float = IDLE) -> AsyncIterator[bytes]:
    """The body, decompressed. TooLarge once it exceeds the limit, Cancelled if the client leaves, Stalled if
    it sends nothing for `idle` seconds."""
    encoding = (call.header(b"content-encoding") or "identity").strip().lower()
    if encoding == "identity":
        source = _raw(call, idle)
    elif encoding in ("gzip", "deflate"):
        source = _inflated(_raw(call, idle), encoding)
    else:
        raise Unsupported(f"Content-Encoding: expected gzip, deflate or none, found '{encoding}'")
    limit = call.service.settings.max_body
    total = 0
    async for chunk in source:
        total += len(chunk)
        if total > limit:
            raise TooLarge(f"the body has more than the {limit} bytes that this node takes (max_body)")
        yield chunk


async def read_all(call: Call) -> bytes:
    """The whole body as one object: for JSON that is parsed at once."""
    declared_length(call)
    pieces = [chunk async for chunk in chunks(call)]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _raw(call: Call, idle: float) -> AsyncIterator[bytes]:
    while True:
        message = await _within(idle, call)
        if message["type"] == "http.disconnect":
            raise Cancelled("the client went away while it sent its request")
        if body := message.get("body", b""):
            yield body
        if not message.get("more_body", False):
            return


async def _within(idle: float, call: Call) -> Message:
    """The next message. As asyncio.timeout, which Python 3.10 hasn't; wait_for makes a task of each wait."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stalled = False

    def expire() -> None:
        nonlocal stalled
        stalled = True
        task.cancel()

    timer = loop.call_later(idle, expire)
    try:
        return await call.receive()
    except asyncio.CancelledError:
        if not stalled:
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        raise Stalled(f"nothing of the body came for {idle:g} seconds") from None
    finally:
        timer.cancel()


async def _inflated(source: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        async for chunk in source:
            pending = chunk
            while pending:
                if inflater.eof:
                    raise UsageError(f"the {encoding} body goes on after its end")
                yield inflater.decompress(pending, INFLATE_STEP)
                pending = inflater.unconsumed_tail or inflater.unused_data
                # A small body can hold much: others get their turn between the pieces.
                await asyncio.sleep(0)
    except zlib.error as error:
        raise UsageError(f"the body is not valid {encoding}: {error}") from None
    if not inflater.eof:
        raise UsageError(f"the {encoding} body ends early")


class Sink:
    """Collects bytes in an arena lease, which grows if `room` was a guess. Owns the lease until `take`."""

    def __init__(self, arena: Arena, room: int | None, limit: int) -> None:
        self.size = 0
        self._arena = arena
        self._limit = limit
        self.lease: Lease | None = None
        self._adopt(FIRST_ROOM if room is None else max(1, room))

    def _adopt(self, room: int) -> None:
        old, view = self.lease, getattr(self, "_view", None)
        lease = self._arena.lease(room, owner=OWNER)
        self._view = writable(lease)
        if old is not None and view is not None:
            self._view[: self.size] = view[: self.size]
            old.release()
        self.lease = lease

    def write(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        """Appends data[start:end]. TooLarge over the limit, OutOfArena."""
        source = memoryview(data)[start:end]
        after = self.size + len(source)
        if after > len(self._view):
            if after > self._limit or self.lease is None:
                raise TooLarge(
                    f"an input has more than the {min(self._limit, len(self._view))} bytes it may have"
                )
            self._adopt(min(self._limit, max(after, 2 * len(self._view))))
        self._view[self.size : after] = source
        self.size = after

    def take(self) -> Lease:
        """The lease with all that was written; the caller owns it now."""
        if len(self._view) - self.size > max(self.size, WASTE):
            self._adopt(max(1, self.size))
        lease, self.lease = self.lease, None
        if lease is None:
            raise RuntimeError("a sink's lease was taken or released before")
        return lease

    def release(self) -> None:
        """Gives the lease back if nobody took it."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()


def writable(lease: Lease) -> memoryview:
    """The lease's bytes, to write. Valid until it is released."""
    buffer = lease.buffer
    return memoryview((ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address)).cast("B")
