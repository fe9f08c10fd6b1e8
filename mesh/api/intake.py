"""From what a client sent to a `Request`: inputs in the arena, terms, a cancel token."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from hailmesh.hail.arena import Lease
from hailmesh.hail.buffer import DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import UsageError
from hailmesh.mesh.api.body import OWNER, Sink, writable
from hailmesh.mesh.api.call import Call
from hailmesh.router.request import TENSOR, Input, Request

PARAMS = "params"
"""The name of the part with a request's options, by the unit ABI."""


class Intake:
    """Owns every lease made for a call until the call ends (`with`), whichever way it ends. Requests hold
    their inputs' leases from `request` on; nodes that need them longer retain the request."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._sinks: list[Sink] = []
        self._loose: list[Lease] = []
        self._requests: list[Request] = []

    def __enter__(self) -> Intake:
        return self

    def __exit__(self, *exc: object) -> None:
        for sink in self._sinks:
            sink.release()
        for lease in self._loose:
            lease.release()
        for request in self._requests:
            request.release()

    @property
    def limit(self) -> int:
        """Bytes that one input may have at most."""
        return self.call.service.settings.max_body

    def sink(self, room: int | None) -> Sink:
        """A place for `room` bytes, or for as many as the node takes if None."""
        sink = Sink(self.call.node.arena, room, self.limit)
        self._sinks.append(sink)
        return sink

    def sunk(self, name: str, media_type: str, sink: Sink) -> Input:
        """The input whose bytes a sink has collected."""
        size = sink.size
        return Input(name, media_type, self._own(sink.take()), size)

    def growing(self, name: str, media_type: str, sink: Sink) -> Input:
        """A streamed input: the sink's room, with what it has by now. Its writer calls `grow`."""
        room = sink.lease
        if room is None:
            raise RuntimeError("the sink's lease was taken before")
        sink.lease = None
        return Input(name, media_type, self._own(room), sink.size, streamed=True, ended=False)

    def data(self, name: str, media_type: str, data: bytes | bytearray | memoryview) -> Input:
        """An input from bytes at hand."""
        lease = self._own(self.call.node.arena.lease(max(1, len(data)), owner=OWNER))
        writable(lease)[: len(data)] = data
        return Input(name, media_type, lease, len(data))

    def tensor(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Input:
        """A tensor to be filled; `writable` of its lease takes the bytes."""
        nbytes = math.prod(shape) * dtype.itemsize
        lease = self._own(self.call.node.arena.lease(max(1, nbytes), owner=OWNER, dtype=dtype, shape=shape))
        return Input(name, TENSOR, lease, nbytes, dtype, shape)

    def request(
        self,
        unit: str,
        inputs: Sequence[Input],
        *,
        qos: str | None = None,
        deadline: float | None = None,
        suffix: str = "",
    ) -> Request:
        """A request to `unit`. The headers X-QoS-Class and X-Deadline-Ms go before `qos` and `deadline` (in
        seconds), which are what the body asks for. `suffix` tells requests of one call apart."""
        call = self.call
        asked = call.header(b"x-qos-class") or qos
        terms = call.node.policy(unit).terms(asked, _deadline(call) or deadline)
        request = Request(
            id=f"{call.unique}{suffix}",
            unit=unit,
            inputs=tuple(inputs),
            qos_class=terms.qos_class,
            budgets=terms.budgets,
            tenant=call.tenant,
            penalty=terms.penalty,
            arrival_ns=time.monotonic_ns(),
            level=terms.level,
            token=CancelToken(),
            size=float(sum(part.room if part.streamed else part.size for part in inputs)),
        )
        request.token.deadline_ns = request.deadline_ns
        for part in inputs:
            if not part.streamed:
                part.lease.freeze()
            self._loose.remove(part.lease)
        self._requests.append(request)
        return request

    def _own(self, lease: Lease) -> Lease:
        self._loose.append(lease)
        return lease


def _deadline(call: Call) -> float | None:
    """X-Deadline-Ms in seconds."""
    text = call.header(b"x-deadline-ms")
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        raise UsageError(f"X-Deadline-Ms: expected milliseconds, found '{text}'") from None
    if not (math.isfinite(milliseconds) and milliseconds > 0):
        raise UsageError(f"X-Deadline-Ms: expected a time above 0, found '{text}'")
    return milliseconds / 1e3
