from __future__ import annotations

import time

import pytest

from hailmesh.hail.cancel import NEVER, CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded


def test_a_token_without_deadline_never_ends() -> None:
    token = CancelToken()
    token.check()
    assert token.deadline_ns == token.latest_start_ns == NEVER


def test_cancelling_runs_the_hooks_once() -> None:
    token, ran = CancelToken(), []
    token.on_cancel(lambda: ran.append("a"))
    forget = token.on_cancel(lambda: ran.append("b"))
    forget()
    forget()
    token.cancel()
    token.cancel()
    assert ran == ["a"]
    assert token.cancelled
    with pytest.raises(Cancelled):
        token.check()


def test_a_hook_that_comes_late_runs_at_once() -> None:
    token, ran = CancelToken(), []
    token.cancel()
    token.on_cancel(lambda: ran.append("late"))()
    assert ran == ["late"]


def test_a_deadline_that_has_passed_is_an_error() -> None:
    now = time.monotonic_ns()
    with pytest.raises(DeadlineExceeded):
        CancelToken(now).check()
    assert CancelToken(now - 1_000_000_000).remaining() <= -1
    token = CancelToken(now + 60_000_000_000)
    token.check()
    assert 0 < token.remaining() <= 60


def test_the_latest_start_is_the_deadline_until_predicted() -> None:
    assert CancelToken(100).latest_start_ns == 100
    assert CancelToken(100, latest_start_ns=40).latest_start_ns == 40
