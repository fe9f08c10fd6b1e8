"""Requests for the router's tests: no inputs, times from a clock that a test moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hailmesh.hail.cancel import CancelToken
from hailmesh.router.qos import Policy
from hailmesh.router.request import Request

SECOND = 1_000_000_000


@pytest.fixture
def make() -> Callable[..., Request]:
    """A request of a class, optionally with a total deadline in seconds, that arrives at `at` seconds."""
    ids = itertools.count(1)

    def build(
        qos: str = "interactive",
        deadline: float | None = None,
        *,
        at: float = 0.0,
        unit: str = "vision",
        size: float = 1000.0,
        penalty: float = 1.0,
    ) -> Request:
        terms = Policy(penalty=penalty).terms(qos, deadline)
        return Request(
            id=f"r{next(ids)}",
            unit=unit,
            inputs=(),
            qos_class=terms.qos_class,
            budgets=terms.budgets,
            tenant="",
            penalty=terms.penalty,
            arrival_ns=int(at * SECOND),
            level=terms.level,
            token=CancelToken(),
            size=size,
        )

    return build
