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


class _Series:
    """The children of one unit and class, looked up once: the lookup costs more than the counting."""

    def __init__(self, metrics: Metrics, unit: str, qos_class: str) -> None:
        self.ok = metrics.requests.labels(unit, qos_class, "ok")
        self.stages = {stage: metrics.stages.labels(unit, qos_class, stage) for stage in STAGES}
        self.first = metrics.first.labels(unit, qos_class)
        self.missed_first = metrics.misses.labels(unit, qos_class, "first")
        self.missed_total = metrics.misses.labels(unit, qos_class, "total")
        self.sheds = metrics.sheds.labels(unit, qos_class)
        self.running = metrics.running.labels(unit)


class Metrics:
    """One registry per node, so that several can live in one process."""

    def __init__(self, node: Node) -> None:
        self.registry = registry = CollectorRegistry()
        self._tallies: dict[str, Tally] = {}
        self._series: dict[tuple[str, str], _Series] = {}
        labels = ("unit", "class")
        self.requests = Counter(
            "hailmesh_requests",
            "Requests by outcome: ok, or the code of the error",
            (*labels, "outcome"),
            registry=registry,
        )
        self.stages = Histogram(
            "hailmesh_stage_seconds",
            "Time per stage of answered requests",
            (*labels, "stage"),
            buckets=BUCKETS,
            registry=registry,
        )
        self.first = Histogram(
            "hailmesh_first_result_seconds",
            "Time to the first chunk of streamed answers",
            labels,
            buckets=BUCKETS,
            registry=registry,
        )
        self.misses = Counter(
            "hailmesh_deadline_misses",
            "Requests whose total deadline passed, or whose first result came late",
            (*labels, "budget"),
            registry=registry,
        )
        self.sheds = Counter(
            "hailmesh_sheds", "Requests refused because they can't be met in time", labels, registry=registry
        )
        self.running = Gauge(
            "hailmesh_requests_in_progress", "Requests under way", ("unit",), registry=registry
        )
        registry.register(_NodeCollector(node))

    def began(self, request: Request) -> None:
        self._of(request).running.inc()

    def first_result(self, request: Request, seconds: float) -> None:
        """The first chunk of a stream came `seconds` after the request."""
        series = self._of(request)
        series.first.observe(seconds)
        if seconds > request.budgets.first:
            series.missed_first.inc()

    def answered(self, request: Request, answer: Answer, now: float) -> None:
        """`now` in Unix seconds."""
        series = self._of(request)
        series.running.dec()
        series.ok.inc()
        tally = self._tallies.setdefault(request.unit, Tally())
        tally.answered += 1
        tally.last = now
        for stage, child in series.stages.items():
            if (milliseconds := answer.timings.get(stage)) is not None:
                child.observe(milliseconds / 1e3)
                tally.stages[stage] += milliseconds / 1e3
        if answer.timings.get("total", 0.0) / 1e3 > request.budgets.total:
            series.missed_total.inc()

    def failed(self, request: Request, error: MeshError, seconds: float) -> None:
        """The request ended in an error `seconds` after it began."""
        series = self._of(request)
        series.running.dec()
        self.requests.labels(request.unit, request.qos_class, error.code).inc()
        tally = self._tallies.setdefault(request.unit, Tally())
        tally.failed += 1
        tally.failed_seconds += seconds
        if isinstance(error, Overloaded):
            series.sheds.inc()
        elif isinstance(error, DeadlineExceeded):
            series.missed_total.inc()

    def _of(self, request: Request) -> _Series:
        key = (request.unit, request.qos_class)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(self, *key)
        return series

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
