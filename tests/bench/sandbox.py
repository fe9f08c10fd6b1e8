"""What a fresh sandbox costs: instance opened, initialised, one empty request, closed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Result, alternate, compare, quick, report, timed
from bench.support import guests
from bench.support.bindings import Bindings
from bench.support.classify import classify_request
from bench.support.node import images_built, node
from bench.support.sandbox import new_run, unit

from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule

NOTES = """\
A minimal guest, instantiated, initialised, asked once and closed, against the same through wasmtime's own
Python bindings on an engine set up alike. `share_of_classify` is the part of a whole classify request
over REST that this is. A real unit costs more: its initialisation, and the pages that it touches first."""


def run(is_quick: bool) -> Result:
    batch, rounds = (20, 3) if is_quick else (50, 60)
    wasm = guests.guest()
    bindings = Bindings(wasm)
    with unit(1 << 20) as own:
        module = LinkedModule(wasm)

        def fresh_sandboxes() -> float:
            runs = [new_run() for _ in range(batch)]

            def all_of_them() -> None:
                for each in runs:
                    with Instance(own, module) as instance:
                        instance.handle(each)

            return timed(all_of_them) / batch * 1e6

        series = alternate(
            {"ours": fresh_sandboxes, "peer": lambda: timed(bindings.request, batch) * 1e6}, rounds=rounds
        )
    extra = {} if is_quick or not images_built("vision") else _share(series.median("ours"))
    return compare("sandbox", series, unit="µs", goal=100.0, goal_of="ours", extra=extra)


def _share(sandbox_us: float) -> dict[str, float]:
    with node("vision") as running:
        request = classify_request(running.url)
        series = alternate({"request": lambda: timed(request) * 1e3}, rounds=40, warmup=10)
    request_ms = series.median("request")
    return {
        "classify_ms": round(request_ms, 2),
        "share_of_classify": round(sandbox_us / 1e3 / request_ms, 4),
    }


if __name__ == "__main__":
    report(run(quick(__doc__)))
