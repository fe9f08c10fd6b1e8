"""Where a run's time goes while a device works for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.lane import Lane, Ticket
from hailmesh.sandboxes.context import current
from hailmesh.sandboxes.protocol import Stages


@contextmanager
def device_time(stages: Stages) -> Iterator[None]:
    """Counts the block as device time, without what a MeteredLane counts as waiting at its gate."""
    began, waited = time.perf_counter(), stages.gate
    try:
        yield
    finally:
        stages.kernel += (time.perf_counter() - began) * 1e6 - (stages.gate - waited)


@contextmanager
def waiting(stages: Stages, stage: Literal["gate", "client"]) -> Iterator[None]:
    """Counts the block as waiting for a device, or for the client."""
    began = time.perf_counter()
    try:
        yield
    finally:
        setattr(stages, stage, getattr(stages, stage) + (time.perf_counter() - began) * 1e6)


class MeteredLane(Lane):
    """A lane whose waits are booked to the run that waits: executors that compute on their caller's thread
    get this one."""

    @contextmanager
    def ticket(self, level: int, token: CancelToken) -> Iterator[Ticket]:
        """See Lane.ticket."""
        with super().ticket(level, token) as ticket:
            if current.context is not None:
                current.context.run.stages.gate += ticket.waited * 1e6
            yield ticket
