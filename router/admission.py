"""Admission: refuse at once what can't be met in time, rather than fail it late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hailmesh.hail.errors import Overloaded
from hailmesh.router.predictor import Prediction, Predictor
from hailmesh.router.request import Request

SIGMAS = 2.0
"""k: how many standard deviations of the work ahead are kept in hand."""
SOONEST_RETRY = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    """A request that holds a slot, for `elapsed` seconds so far."""

    elapsed: float
    prediction: Prediction | None

    @property
    def residual(self) -> float:
        """Seconds still to go. What has outrun its prediction is expected to go on for a deviation more."""
        if self.prediction is None:
            return 0.0
        return max(self.prediction.mean - self.elapsed, self.prediction.deviation)


@dataclass(frozen=True, slots=True)
class Load:
    """What stands between a request and its unit: all that `running` hold of `slots`, and the predictions of
    those `ahead` in the queue, at the same or a higher level."""

    slots: int
    running: Sequence[Running]
    ahead: Sequence[Prediction | None]


def wait(load: Load) -> float:
    """Predicted seconds in the queue: (residuals + means + k·√(variances)) / slots, 0 if a slot is free."""
    if len(load.running) + len(load.ahead) < load.slots:
        return 0.0
    ahead = [prediction for prediction in load.ahead if prediction is not None]
    residual = sum(running.residual for running in load.running)
    mean = sum(prediction.mean for prediction in ahead)
    variance = sum(prediction.variance for prediction in ahead)
    return (residual + mean + SIGMAS * math.sqrt(variance)) / max(1, load.slots)


def admit(request: Request, key: str, load: Load, predictor: Predictor, now_ns: int) -> None:
    """Overloaded, with the predicted total time and when to try again, if the request can't be expected to
    meet its deadline. One of a kind never seen is admitted."""
    own = predictor.predict(key, request.size)
    if own is None:
        return
    waiting = wait(load)
    left = (request.deadline_ns - now_ns) / 1e9
    if waiting + own.q95 <= left:
        return
    alone = own.q95 > left
    if alone and waiting == 0.0 and predictor.probe(key, request.size, now_ns):
        return
    retry = predictor.probe_in(key, request.size, now_ns) if alone else waiting + own.q95 - left
    predicted = waiting + own.q95 + (now_ns - request.arrival_ns) / 1e9
    raise Overloaded(
        f"unit {request.unit} would take {predicted * 1e3:.0f} ms, the deadline is"
        f" {request.budgets.total * 1e3:.0f} ms: allow more time, or try again later",
        retry_after=max(SOONEST_RETRY, retry),
        predicted=predicted,
    )
