"""Session-lived instances: each serves one client's stream, run after run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Overloaded, UnitFault
from hailmesh.sandboxes.instance import Instance

MAX_SESSIONS = 64
"""Instances that a worker keeps alive between their runs."""

_LOOK_AGAIN = 0.1
"""Seconds between looks at the token of a run that waits for another of its session."""


class _Session:
    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.instance: Instance | None = None
        self.closed = False


class Sessions:
    """By name. An instance is made at a session's first run, and ends with `close`, or when a run breaks it;
    after that the session's name is only good for closing."""

    def __init__(self, make: Callable[[], Instance]) -> None:
        self._make = make
        self._open: dict[str, _Session] = {}
        self._lock = threading.Lock()

    @contextmanager
    def instance(self, name: str, token: CancelToken) -> Iterator[Instance]:
        """The session's instance, for one run at a time. Overloaded if there are too many sessions; UnitFault
        if this one has ended; Cancelled or DeadlineExceeded if another run holds the instance until then."""
        session = self._enter(name)
        while not session.turn.acquire(timeout=min(max(token.remaining(), 0.0), _LOOK_AGAIN)):
            token.check()
        try:
            if session.closed:
                raise UnitFault("this session has ended; open another one")
            if session.instance is None:
                session.instance = self._make()
            yield session.instance
        finally:
            broken = session.instance is None or session.instance.broken
            session.closed = session.closed or broken
            if session.closed:
                self._end(session)
            session.turn.release()

    def _enter(self, name: str) -> _Session:
        with self._lock:
            session = self._open.get(name)
            if session is None:
                if len(self._open) >= MAX_SESSIONS:
                    raise Overloaded(f"this unit serves {MAX_SESSIONS} sessions already; try again later")
                session = self._open[name] = _Session()
            return session

    def close(self, name: str) -> None:
        """Its instance ends, after the run that holds it if one does. A session that isn't there is fine."""
        with self._lock:
            session = self._open.pop(name, None)
        if session is None:
            return
        session.closed = True
        if session.turn.acquire(blocking=False):
            try:
                self._end(session)
            finally:
                session.turn.release()

    def close_all(self) -> None:
        for name in list(self._open):
            self.close(name)

    @staticmethod
    def _end(session: _Session) -> None:
        instance, session.instance = session.instance, None
        if instance is not None:
            instance.close()
