"""The arbiter: who may use a unit's slots next. A state machine; whoever owns it runs what it grants."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from hailmesh.hail.errors import DeadlineExceeded, NotFound, Overloaded
from hailmesh.router.admission import Load, Running, admit
from hailmesh.router.predictor import Prediction, Predictor
from hailmesh.router.request import Request


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued request. `latest_ns`: after that it can't be expected to meet its deadline any more."""

    request: Request
    prediction: Prediction | None
    latest_ns: int
    order: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Granted:
    """A request that holds a slot, of the unit version with this predictor key."""

    request: Request
    key: str
    prediction: Prediction | None
    since_ns: int


@dataclass(slots=True)
class _Unit:
    key: str
    slots: int
    queue: list[Waiting] = field(default_factory=list)
    running: dict[str, Granted] = field(default_factory=dict)


class Arbiter:
    """Per unit, a bounded queue and slots. Higher levels first; within a level, the least latest start time
    for the first result. Not thread-safe; times are CLOCK_MONOTONIC nanoseconds and passed in.

    A request lives here from `submit` until `grant` and then `finish`, or until `expire`, `cancel`,
    `remove` or a displacement hands it back; it is never in two hands.
    """

    def __init__(self, predictor: Predictor, bound: int = 64) -> None:
        self._predictor = predictor
        self._bound = bound
        self._units: dict[str, _Unit] = {}
        self._count = 0

    def add(self, unit: str, version: str, slots: int) -> None:
        """A unit serves from now on, or serves another version, or with other slots. Its queue stays."""
        key = f"{unit}@{version}"
        known = self._units.get(unit)
        if known is None:
            self._units[unit] = _Unit(key, slots)
            return
        if known.key != key:
            self._predictor.forget(known.key)
        known.key, known.slots = key, slots

    def remove(self, unit: str) -> list[Request]:
        """The unit takes no more requests; returns those that waited. Those that run still `finish`."""
        known = self._units.get(unit)
        if known is None:
            return []
        waiting, known.queue, known.slots = known.queue, [], 0
        self._predictor.forget(known.key)
        if not known.running:
            del self._units[unit]
        return [entry.request for entry in waiting]

    def submit(self, request: Request, now_ns: int) -> Request | None:
        """Queues a request. Overloaded if it can't be met in time, or the queue is full of equals and
        betters; a request of a lower level than this one is displaced from a full queue, and returned."""
        unit = self._serving(request.unit)
        displaced = self._full(unit, request) if len(unit.queue) >= self._bound else None
        load = Load(
            unit.slots,
            [Running((now_ns - held.since_ns) / 1e9, held.prediction) for held in unit.running.values()],
            [entry.prediction for entry in unit.queue if entry.request.level >= request.level],
        )
        admit(request, unit.key, load, self._predictor, now_ns)
        if displaced is not None:
            unit.queue.remove(displaced)
        prediction = self._predictor.predict(unit.key, request.size)
        needs_ns = int(prediction.mean * 1e9) if prediction is not None else 0
        if request.deadline_ns - needs_ns < now_ns:
            # A probe: it runs although it is predicted to be late, so that alone must not expire it.
            needs_ns = 0
        self._count += 1
        order = (-request.level, request.first_due_ns - needs_ns, self._count)
        entry = Waiting(request, prediction, request.deadline_ns - needs_ns, order)
        insort(unit.queue, entry, key=lambda waiting: waiting.order)
        return displaced.request if displaced is not None else None

    def grant(self, now_ns: int) -> list[Request]:
        """Those that may run now, most urgent first. Call `expire` before it."""
        granted: list[Waiting] = []
        for unit in self._units.values():
            room = unit.slots - len(unit.running)
            if room > 0 and unit.queue:
                first, unit.queue = unit.queue[:room], unit.queue[room:]
                granted += first
                for entry in first:
                    unit.running[entry.request.id] = Granted(
                        entry.request, unit.key, entry.prediction, now_ns
                    )
        granted.sort(key=lambda entry: entry.order)
        return [entry.request for entry in granted]

    def finish(self, request: Request, now_ns: int, *, learn: bool = True) -> float:
        """The request gives its slot back; returns the seconds it held it. `learn` from that time, unless
        it says nothing of the next (the unit failed, the client went away)."""
        unit = self._units[request.unit]
        held = unit.running.pop(request.id)
        seconds = (now_ns - held.since_ns) / 1e9
        if unit.slots == 0 and not unit.running:
            del self._units[request.unit]
        elif learn and unit.slots and held.key == unit.key:
            self._predictor.observe(unit.key, request.size, seconds, now_ns)
        return seconds

    def expire(self, now_ns: int) -> list[tuple[Request, DeadlineExceeded]]:
        """Takes out those that waited past their latest start, each with its error."""
        expired = []
        for unit in self._units.values():
            late = [entry for entry in unit.queue if entry.latest_ns <= now_ns]
            if late:
                unit.queue = [entry for entry in unit.queue if entry.latest_ns > now_ns]
                expired += [(entry.request, _late(entry.request, now_ns)) for entry in late]
        return expired

    def next_expiry(self) -> int | None:
        """When to call `expire` next, in CLOCK_MONOTONIC nanoseconds; None while nothing waits."""
        return min((entry.latest_ns for unit in self._units.values() for entry in unit.queue), default=None)

    def cancel(self, request_id: str) -> Request | None:
        """Takes a waiting request out; None if it doesn't wait (one that runs keeps its slot to `finish`)."""
        for unit in self._units.values():
            for entry in unit.queue:
                if entry.request.id == request_id:
                    unit.queue.remove(entry)
                    return entry.request
        return None

    def waiting(self, unit: str) -> int:
        known = self._units.get(unit)
        return len(known.queue) if known is not None else 0

    def running(self, unit: str) -> int:
        known = self._units.get(unit)
        return len(known.running) if known is not None else 0

    def _serving(self, name: str) -> _Unit:
        unit = self._units.get(name)
        if unit is None or unit.slots == 0:
            raise NotFound(f"no unit {name} takes requests; there are {', '.join(self._units) or 'none'}")
        return unit

    def _full(self, unit: _Unit, request: Request) -> Waiting:
        """Whom to displace from a full queue, by level alone; Overloaded if nobody is below `request`."""
        last = unit.queue[-1]
        if last.request.level < request.level:
            return last
        means = [entry.prediction.mean for entry in unit.queue if entry.prediction is not None]
        raise Overloaded(
            f"the queue of unit {request.unit} is full ({self._bound} wait): try again later",
            retry_after=max(0.1, sum(means) / unit.slots / 2),
            predicted=sum(means) / unit.slots if means else None,
        )


def _late(request: Request, now_ns: int) -> DeadlineExceeded:
    waited = (now_ns - request.arrival_ns) / 1e6
    return DeadlineExceeded(
        f"waited {waited:.0f} ms for unit {request.unit} and could no longer be done within"
        f" {request.budgets.total * 1e3:.0f} ms: allow more time, or try again later"
    )
