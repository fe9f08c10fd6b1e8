"""What the node counts: requests and their stages per unit and class, the arena, the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hailmesh.hail.errors import DeadlineExceeded, MeshError, Overloaded
from hailmesh.router.request import Request

if TYPE_CHECKING:
    from hailmesh.mesh.api.ports import Answer, Node

STAGES = ("queue", "sandbox", "bridge", "kernel", "gate", "total")
BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.0165, 0.033, 0.066, 0.1),
    *(0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Seconds; with the classes' own budgets (33 ms, 200 ms, 500 ms, 30 s, 60 s) among them."""


@dataclass(slots=True)
class Tally:
    """Sums for one unit, for clients that ask for statistics rather than scrape them. Seconds."""

    answered: int = 0
    failed: int = 0
    last: float = 0.0
    failed_seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))


class Metrics:
    """One registry per node, so that several can live in one process."""

    def __init__(self, node: Node) -> None:
        self.registry = CollectorRegistry()
        self._tallies: dict[str, Tally] = {}
        labels = ("unit", "class")
        self._requests = Counter(
            "hailmesh_requests",
            "Requests by outcome: ok, or the code of the error",
            (*labels, "outcome"),
            registry=self.registry,
        )
        self._stages = Histogram(
            "hailmesh_stage_seconds",
            "Time per stage of answered requests",
            (*labels, "stage"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._first = Histogram(
            "hailmesh_first_result_seconds",
            "Time to the first chunk of streamed answers",
            labels,
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._misses = Counter(
            "hailmesh_deadline_misses",
            "Requests whose total deadline passed, or whose first result came late",
            (*labels, "budget"),
            registry=self.registry,
        )
        self._sheds = Counter(
            "hailmesh_sheds",
            "Requests refused because they could not be met in time",
            labels,
            registry=self.registry,
        )
        self._running = Gauge(
            "hailmesh_requests_in_progress", "Requests under way", ("unit",), registry=self.registry
        )
        self.registry.register(_NodeCollector(node))

    def began(self, request: Request) -> None:
        self._running.labels(request.unit).inc()

    def first_result(self, request: Request, seconds: float) -> None:
        """The first chunk of a stream came `seconds` after the request."""
        self._first.labels(request.unit, request.qos_class).observe(seconds)
        if seconds > request.budgets.first:
            self._misses.labels(request.unit, request.qos_class, "first").inc()

    def answered(self, request: Request, answer: Answer, now: float) -> None:
        """`now` in Unix seconds."""
        labels = (request.unit, request.qos_class)
        self._running.labels(request.unit).dec()
        self._requests.labels(*labels, "ok").inc()
        tally = self._tallies.setdefault(request.unit, Tally())
        tally.answered += 1
        tally.last = now
        for stage in STAGES:
            if (milliseconds := answer.timings.get(stage)) is not None:
                self._stages.labels(*labels, stage).observe(milliseconds / 1e3)
                tally.stages[stage] += milliseconds / 1e3
        if answer.timings.get("total", 0.0) / 1e3 > request.budgets.total:
            self._misses.labels(*labels, "total").inc()

    def failed(self, request: Request, error: MeshError, seconds: float) -> None:
        """The request ended in an error `seconds` after it began."""
        labels = (request.unit, request.qos_class)
        self._running.labels(request.unit).dec()
        self._requests.labels(*labels, error.code).inc()
        tally = self._tallies.setdefault(request.unit, Tally())
        tally.failed += 1
        tally.failed_seconds += seconds
        if isinstance(error, Overloaded):
            self._sheds.labels(*labels).inc()
        elif isinstance(error, DeadlineExceeded):
            self._misses.labels(*labels, "total").inc()

    def tally(self, unit: str) -> Tally:
        return self._tallies.get(unit, Tally())

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _NodeCollector(Collector):
    """What the node knows itself, read when it is asked for."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> Iterable[Metric]:
        # Registering must not read the node, which may not be up yet.
        return ()

    def collect(self) -> Iterator[Metric]:
        report = self._node.arena.report()
        arena = GaugeMetricFamily("hailmesh_arena_bytes", "The arena's bytes by kind", labels=["kind"])
        for kind in ("size", "used", "peak_used", "free", "largest_free", "redundant"):
            arena.add_metric([kind], getattr(report, kind))
        yield arena
        yield GaugeMetricFamily(
            "hailmesh_arena_fragmentation", "1 - largest free / total free", value=report.fragmentation
        )
        yield GaugeMetricFamily(
            "hailmesh_arena_leases", "Blocks not yet back in the pool", value=report.count
        )
        units = self._node.units()
        up = GaugeMetricFamily(
            "hailmesh_unit_up", "1 while the unit serves", labels=["unit", "version", "state"]
        )
        restarts = CounterMetricFamily(
            "hailmesh_worker_restarts", "Restarts of a unit's worker", labels=["unit"]
        )
        seen: dict[str, int] = {}
        for name, version, state in sorted(
            {(unit["name"], unit["version"], unit["state"]) for unit in units}
        ):
            up.add_metric([name, version, state], float(state == "active"))
        for unit in units:
            seen[unit["name"]] = seen.get(unit["name"], 0) + int(unit.get("restarts", 0))
        for name, count in seen.items():
            restarts.add_metric([name], count)
        yield up
        yield restarts
        yield GaugeMetricFamily(
            "hailmesh_ready", "1 while every unit that should serve does", value=float(self._node.ready)
        )
