"""Handing 16 MiB from one sandbox to another: by mapping the arena's pages, and by copying."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Measure, Result, alternate, compare, quick, report, short, timed
from bench.support import guests
from bench.support.bindings import Bindings
from bench.support.sandbox import new_run, unit

from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule
from hailmesh.sandboxes.protocol import Part
from hailmesh.sandboxes.run import Run
from hailmesh.sandboxes.unit import Unit

NOTES = """\
The giver's reply with the tensor plus the taker's request that maps it, against one memmove from memory
to memory and the taker's request, both behind wasmtime's own bindings: the least that any copy costs. The
headline is `untouched`: the taker has the tensor in its memory, and hands it on to an executor without
reading it itself. A taker that reads all of it (`read`) pays for the page faults of the mapping instead
of the copy, and gains little: windows pay where bulk data passes through."""

NBYTES = 16 << 20
_PAGES = (guests.WINDOW + NBYTES) // 65536
_NAME_AND_SHAPE = r"{}t" + r"\00" * 13 + "".join(rf"\{byte:02x}" for byte in NBYTES.to_bytes(4, "little"))
_GIVER = f"""(if (global.get $filled)
    (then (drop (call $reply_tensor (i32.const 18) (i32.const 1) (i32.const 1))))
    (else
      (drop (call $tensor_new (i32.const 3) (i32.const 1) (i32.const 32)))
      (drop (call $tensor_map (i32.const 1) (i32.const 1)))
      {guests.filling(NBYTES)}
      (global.set $filled (i32.const 1))))"""
_MAP = "(drop (call $part_map (i32.const 0)))"


class Modules:
    """The sandboxes that hand over and take, ours and behind the bindings."""

    def __init__(self) -> None:
        self.giver = LinkedModule(
            guests.guest(
                _GIVER,
                calls=("tensor_new", "tensor_map", "reply_tensor"),
                pages=_PAGES,
                data=_NAME_AND_SHAPE,
                globals_="(global $filled (mut i32) (i32.const 0))",
            )
        )
        reading = guests.reading(NBYTES)
        self.maps = _taker(_MAP)
        self.maps_and_reads = _taker(_MAP + reading)
        self.fills = Bindings(guests.guest(guests.filling(NBYTES), pages=_PAGES))
        self.idles = Bindings(guests.guest(pages=_PAGES))
        self.reads = Bindings(guests.guest(reading, pages=_PAGES))


def _taker(handle: str) -> LinkedModule:
    return LinkedModule(guests.guest(handle, calls=("part_map",), pages=_PAGES))


def run(is_quick: bool) -> Result:
    rounds = 3 if is_quick else 60
    modules = Modules()
    with unit(4 * NBYTES) as own:
        series = alternate(
            {
                "ours": _handing(own, modules.giver, modules.maps),
                "peer": _copying(modules.fills, modules.idles),
                "read": _handing(own, modules.giver, modules.maps_and_reads),
                "copied and read": _copying(modules.fills, modules.reads),
            },
            rounds=rounds,
        )
    read, copied = series.median("read"), series.median("copied and read")
    extra = {"read": {"ours": short(read), "peer": short(copied), "ratio": short(copied / read)}}
    return compare("handover", series, unit="µs", goal=50.0, extra=extra)


def _handing(own: Unit, giver: LinkedModule, taker: LinkedModule) -> Measure:
    """The taker's part is the very tensor that the giver replies."""

    def measure() -> float:
        with Instance(own, giver) as gives, Instance(own, taker) as takes:
            gives.handle(new_run())
            replying = new_run()

            def hand_over() -> Run:
                gives.handle(replying)
                buffer = replying.reply_tensors["t"].buffer
                taking = new_run(Part("t", "tensor", buffer.offset, buffer.nbytes, buffer.nbytes))
                takes.handle(taking)
                return taking

            took = timed(hand_over) * 1e6
            replying.drop_tensors()
            return took

    return measure


def _copying(giver: Bindings, taker: Bindings) -> Measure:
    """From one memory to the same place in the other."""

    def measure() -> float:
        gives, takes = giver.open(), taker.open()
        gives.handle()

        def copy() -> None:
            ctypes.memmove(takes.address + guests.WINDOW, gives.address + guests.WINDOW, NBYTES)
            takes.handle()

        took = timed(copy) * 1e6
        gives.close()
        takes.close()
        return took

    return measure


if __name__ == "__main__":
    report(run(quick(__doc__)))
