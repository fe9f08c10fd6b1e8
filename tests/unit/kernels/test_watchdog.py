"""Runs are told to stop in time."""

from __future__ import annotations

import threading
import time

from hailmesh.hail.cancel import CancelToken
from hailmesh.kernels.watchdog import Watchdog


def in_seconds(seconds: float) -> CancelToken:
    return CancelToken(time.monotonic_ns() + int(seconds * 1e9))


def test_a_passed_deadline_stops_the_run() -> None:
    stopped = threading.Event()
    with Watchdog().over(in_seconds(0.02), stopped.set):
        assert stopped.wait(30)


def test_cancelling_stops_the_run() -> None:
    token, stopped = in_seconds(600), threading.Event()
    with Watchdog().over(token, stopped.set):
        assert not stopped.is_set()
        token.cancel()
        assert stopped.is_set()


def test_an_earlier_deadline_that_comes_later_is_met_first() -> None:
    watchdog, order, done = Watchdog(), [], threading.Event()

    def stop(name: str) -> None:
        order.append(name)
        if len(order) == 2:
            done.set()

    with (
        watchdog.over(in_seconds(0.3), lambda: stop("late")),
        watchdog.over(in_seconds(0.02), lambda: stop("early")),
    ):
        assert done.wait(30)
    assert order == ["early", "late"]


def test_a_run_that_ended_is_left_alone() -> None:
    watchdog, stopped, later = Watchdog(), threading.Event(), threading.Event()
    with watchdog.over(in_seconds(0.05), stopped.set):
        pass
    with watchdog.over(in_seconds(0.1), later.set):
        assert later.wait(30)
    assert not stopped.is_set()


def test_without_a_deadline_there_is_no_thread() -> None:
    before = threading.active_count()
    with Watchdog().over(CancelToken(), lambda: None):
        assert threading.active_count() == before
