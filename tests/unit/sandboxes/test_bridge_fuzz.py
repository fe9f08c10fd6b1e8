"""Every host call with arguments that no sane guest would pass: nothing raises, hangs or crashes the host."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from hailmesh.sandboxes.bridge import CALLS
from hailmesh.sandboxes.module import LinkedModule

COUNT = 4000
_CHOICES = (0, 1, 2, 3, 4, 7, 8, 16, 100, 4096, 8192, 65535, 65536, 2**30, -1, -2, -4, -8, -65536)
_LIMITS = (2**31 - 1, -(2**31), 262143, 262140, 0x40000, 0x40001)


def dispatcher(guest: Any) -> bytes:
    """A guest that makes COUNT calls; which ones and with what it reads from part 0. The size of that stands
    at address 16."""
    offered = [call for call in CALLS if call.name != "proc_exit"]
    cases = ""
    for number, call in enumerate(offered):
        arguments = "".join(
            f"({'i64' if letter == 'I' else 'i32'}.load offset={4 + 8 * index} (local.get $a))"
            for index, letter in enumerate(call.parameters)
        )
        cases += (
            f"(if (i32.eq (i32.load (local.get $a)) (i32.const {number}))"
            f" (then (drop (call ${call.name} {arguments}))))"
        )
    return bytes(
        guest.wasm(
            "(local.set $a (call $part_map (i32.const 0)))"
            "(local.set $b (i32.add (local.get $a) (i32.load (i32.const 16))))"
            f"(loop $on {cases} (local.set $a (i32.add (local.get $a) (i32.const 96)))"
            "(br_if $on (i32.lt_u (local.get $a) (local.get $b)))) "
            f"(call $reply (i32.const 16) (i32.const 4))"
        )
    )


def script(seed: int) -> bytes:
    """COUNT records of 96 bytes: the call's number as i32, then eleven arguments as i64."""
    draw = random.Random(seed)
    calls = len(CALLS) - 1
    records = b""
    for _ in range(COUNT):
        values = [
            draw.choice((*_CHOICES, *_LIMITS, draw.getrandbits(31), draw.randrange(40))) for _ in range(11)
        ]
        records += struct.pack("<i", draw.randrange(calls)) + struct.pack("<11q", *values) + bytes(4)
    return records


@pytest.mark.parametrize("seed", range(8))
def test_no_arguments_harm_the_host(box: Any, guest: Any, seed: int) -> None:
    records = script(seed)
    guest.at(struct.pack("<i", len(records)))
    module = LinkedModule(dispatcher(guest))
    before = box.arena.count
    part = box.part(records)
    box.sink.chunk = lambda run, data: run.acknowledge(len(data))
    box.limit(tensors=20)
    run = box.handle(module, part, seconds=120)
    run.drop_tensors()
    assert run.reply is not None, "whatever it did to its own memory, the guest came to its end"
    assert len(run.reply) == 4
    assert box.content(part) == records
    assert box.arena.count == before + 1
