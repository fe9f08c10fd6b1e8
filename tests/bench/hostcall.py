"""What a host call costs, from a loop in a guest."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Measure, Result, alternate, compare, quick, report, short, timed
from bench.support import guests
from bench.support.bindings import Bindings
from bench.support.sandbox import new_run, unit

from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.unit import Unit

NOTES = """\
The shortest call (`part_count`), against a Python function behind wasmtime's own bindings. `timed_us` is
a call that the bridge also measures for the request's stage timings, and that checks a handle and writes
a record to the guest (`tensor_info`): most calls are of that kind. Both are taken in a process that does
nothing else; Python work on other threads of the worker makes calls wait for the interpreter."""

_TENSOR_INFO = "(call $tensor_info (i32.const 1) (i32.const 128))"
_NEW_TENSOR = "(drop (call $tensor_new (i32.const 3) (i32.const 1) (i32.const 32)))"
_ONE_ELEMENT = "{}" + r"\00" * 14 + r"\01\00\00\00"


def run(is_quick: bool) -> Result:
    times, rounds = (1_000, 3) if is_quick else (4_000, 60)
    plain = guests.guest(guests.calling(times, "(call $part_count)"), calls=("part_count",))
    timed_calls = guests.guest(
        _NEW_TENSOR + guests.calling(times, _TENSOR_INFO),
        calls=("tensor_new", "tensor_info"),
        data=_ONE_ELEMENT,
    )
    with unit(1 << 20) as own:
        peer = Bindings(plain).open()
        series = alternate(
            {
                "ours": _loop(own, plain, times),
                "peer": lambda: timed(peer.handle) / times * 1e6,
                "timed": _loop(own, timed_calls, times),
            },
            rounds=rounds,
        )
    extra = {"timed_us": short(series.median("timed"))}
    return compare("hostcall", series, unit="µs", goal=2.0, goal_of="ours", extra=extra)


def _loop(own: Unit, wasm: bytes, times: int) -> Measure:
    """Microseconds per call of one request that makes `times` of them."""
    module = LinkedModule(wasm)

    def measure() -> float:
        with Instance(own, module) as instance:
            request = new_run()
            return timed(lambda: instance.handle(request)) / times * 1e6

    return measure


if __name__ == "__main__":
    report(run(quick(__doc__)))
