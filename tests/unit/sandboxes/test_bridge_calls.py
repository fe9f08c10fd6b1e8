"""Every call of mesh_v1 that needs no model: what it does, and what it answers to nonsense."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import hailmesh.sandboxes
from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import TooLarge, UnitFault
from hailmesh.sandboxes.bridge import CALLS, MESH
from hailmesh.sandboxes.errno import Errno
from hailmesh.sandboxes.run import Run

OUTSIDE = "(i32.const 0x7fffff00)"


def replied(run: Run) -> bytes:
    assert run.reply is not None
    return run.reply


def test_the_bridge_offers_what_the_header_declares() -> None:
    header = Path(hailmesh.sandboxes.__file__).with_name("sdk") / "mesh_v1.h"
    declared = {}
    pattern = re.compile(r'MESH_IMPORT\("(\w+)"\)\s+(int32_t|int64_t) \w+\(([^)]*)\);')
    for name, result, parameters in pattern.findall(header.read_text()):
        count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
        declared[name] = "i" * count + ("I" if result == "int64_t" else "i")
    assert {call.name: call.signature for call in CALLS if call.module == MESH} == declared


def test_config_is_the_units_json(box: Any, guest: Any) -> None:
    box.unit = replace(box.unit, config=b'{"labels":3}')
    module = guest.wasm("(call $reply (i32.const 8192) (call $config (i32.const 8192) (i32.const 99)))")
    assert replied(box.handle(module)) == b'{"labels":3}'


def test_a_buffer_too_small_gets_what_fits_and_the_full_length(box: Any, guest: Any) -> None:
    box.unit = replace(box.unit, config=b"0123456789")
    module = guest.wasm(
        "(local.set $a (call $config (i32.const 8192) (i32.const 4)))"
        "(i32.store (i32.const 8200) (local.get $a)) (call $reply (i32.const 8192) (i32.const 12))"
    )
    assert replied(box.handle(module)) == b"0123" + bytes(4) + struct.pack("<i", 10)


def test_parts_are_counted_and_described(box: Any, guest: Any) -> None:
    parts = (
        box.part(b"abc", name="image", type="image/jpeg"),
        box.part(bytes(8), name="input", type="tensor", dtype=int(DType.F32), shape=(2,)),
    )
    assert box.results(guest.results("(call $part_count)"), *parts) == [2]
    for index, expected in enumerate(
        (
            {"name": "image", "type": "image/jpeg", "size": 3, "streamed": False},
            {"name": "input", "type": "tensor", "size": 8, "streamed": False, "dtype": 1, "shape": [2]},
        )
    ):
        info = f"(call $part_info (i32.const {index}) (i32.const 8192) (i32.const 500))"
        module = guest.wasm(f"(call $reply (i32.const 8192) {info})")
        assert orjson.loads(replied(box.handle(module, *parts))) == expected


def test_a_mapped_part_is_read_in_place(box: Any, guest: Any) -> None:
    part = box.part(bytes(range(256)) * 300)
    module = guest.wasm(
        "(call $reply (call $part_map (i32.const 0)) (i32.const 76800))",
    )
    assert replied(box.handle(module, part)) == bytes(range(256)) * 300


def test_mapping_a_part_twice_gives_the_same_window(box: Any, guest: Any) -> None:
    module = guest.results("(call $part_map (i32.const 0))", "(call $part_map (i32.const 0))")
    first, second = box.results(module, box.part(b"x"))
    assert first == second
    assert first % 65536 == 0


def test_an_empty_part_has_nothing_to_map(box: Any, guest: Any) -> None:
    module = guest.results("(call $part_map (i32.const 0))")
    assert box.results(module, box.part(b"")) == [-Errno.ENOMSG]


def test_a_part_as_a_tensor_has_its_dtype_and_shape_and_is_read_only(box: Any, guest: Any) -> None:
    part = box.part(bytes(24), dtype=int(DType.F32), shape=(2, 3))
    module = guest.results(
        "(local.tee $a (call $part_tensor (i32.const 0)))",
        "(call $tensor_info (local.get $a) (i32.const 8192))",
        *(f"(i32.load (i32.const {8192 + 4 * word}))" for word in range(11)),
        "(call $tensor_map (local.get $a) (i32.const 1))",
        "(call $tensor_drop (local.get $a))",
        "(call $tensor_drop (local.get $a))",
    )
    handle, ok, *info, written, dropped, again = box.results(module, part)
    assert (handle > 0, ok, dropped, again) == (True, 0, 0, -Errno.EBADF)
    assert info == [DType.F32, 2, 24, 2, 3, 0, 0, 0, 0, 0, 0]
    assert written == -Errno.EROFS


def test_a_new_tensor_is_zero_and_keeps_what_is_written(box: Any, guest: Any) -> None:
    shape = guest.ints(2, 5)
    module = guest.results(
        f"(local.tee $a (call $tensor_new (i32.const 4) (i32.const 2) {shape}))",
        "(local.tee $b (call $tensor_map (local.get $a) (i32.const 1)))",
        "(i32.load (i32.add (local.get $b) (i32.const 36)))",
        "(block (result i32) (i32.store (local.get $b) (i32.const 77)) (i32.const 0))",
        "(call $tensor_unmap (local.get $a))",
        "(i32.load (local.get $b))",
        "(i32.load (call $tensor_map (local.get $a) (i32.const 0)))",
    )
    handle, pointer, zero, _, unmapped, gone, kept = box.results(module)
    assert handle > 0
    assert pointer % 65536 == 0
    assert (zero, unmapped, gone, kept) == (0, 0, 0, 77)


def test_a_tensor_that_was_read_is_frozen(box: Any, guest: Any) -> None:
    module = guest.results(
        f"(local.tee $a (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(8)}))",
        "(local.tee $b (call $tensor_map (local.get $a) (i32.const 0)))",
        "(call $tensor_map (local.get $a) (i32.const 1))",
        "(i32.eq (call $tensor_map (local.get $a) (i32.const 0)) (local.get $b))",
    )
    assert box.results(module)[2:] == [-Errno.EROFS, 1]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(call $part_info (i32.const 1) (i32.const 8192) (i32.const 9))", Errno.EINVAL),
        ("(call $part_info (i32.const -1) (i32.const 8192) (i32.const 9))", Errno.EINVAL),
        (f"(call $part_info (i32.const 0) {OUTSIDE} (i32.const 9))", Errno.EFAULT),
        ("(call $part_info (i32.const 0) (i32.const -4) (i32.const 9))", Errno.EFAULT),
        ("(call $part_map (i32.const 9))", Errno.EINVAL),
        ("(call $part_wait (i32.const 9) (i32.const 0))", Errno.EINVAL),
        ("(call $part_tensor (i32.const 9))", Errno.EINVAL),
        ("(call $tensor_new (i32.const 12) (i32.const 0) (i32.const 0))", Errno.EINVAL),
        ("(call $tensor_new (i32.const -1) (i32.const 0) (i32.const 0))", Errno.EINVAL),
        ("(call $tensor_new (i32.const 1) (i32.const 9) (i32.const 0))", Errno.EINVAL),
        ("(call $tensor_new (i32.const 1) (i32.const -1) (i32.const 0))", Errno.EINVAL),
        (f"(call $tensor_new (i32.const 1) (i32.const 2) {OUTSIDE})", Errno.EFAULT),
        ("(call $tensor_info (i32.const 5) (i32.const 8192))", Errno.EBADF),
        ("(call $tensor_map (i32.const 0) (i32.const 0))", Errno.EBADF),
        ("(call $tensor_map (i32.const -7) (i32.const 0))", Errno.EBADF),
        ("(call $tensor_unmap (i32.const 1))", Errno.EBADF),
        ("(call $tensor_drop (i32.const 1))", Errno.EBADF),
        ("(call $graph (i32.const 8192) (i32.const 3))", Errno.ENOENT),
        (f"(call $graph {OUTSIDE} (i32.const 3))", Errno.EFAULT),
        ("(call $graph (i32.const 8192) (i32.const -1))", Errno.E2BIG),
        ("(call $graph_info (i32.const 1) (i32.const 8192) (i32.const 9))", Errno.EBADF),
        (
            "(call $graph_run (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
            Errno.EBADF,
        ),
        ("(call $text_token (i32.const 1) (i32.const 8192) (i32.const 1))", Errno.EBADF),
        ("(call $seq_open (i32.const 1) (i32.const 9) (i32.const 0) (i32.const 0))", Errno.EBADF),
        ("(call $seq_feed (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0))", Errno.EBADF),
        ("(call $seq_close (i32.const 1))", Errno.EBADF),
        (f"(call $emit {OUTSIDE} (i32.const 9))", Errno.EFAULT),
        ("(call $emit (i32.const 0) (i32.const 0x40001))", Errno.E2BIG),
        (f"(call $reply {OUTSIDE} (i32.const 9))", Errno.EFAULT),
        ("(call $reply (i32.const 0) (i32.const -1))", Errno.E2BIG),
        ("(call $reply_tensor (i32.const 0) (i32.const 1) (i32.const 3))", Errno.EBADF),
        ("(call $log (i32.const 4) (i32.const 0) (i32.const 1))", Errno.EINVAL),
        (f"(call $log (i32.const 1) {OUTSIDE} (i32.const 1))", Errno.EFAULT),
        (f"(call $config {OUTSIDE} (i32.const 9))", Errno.EFAULT),
    ],
)
def test_nonsense_gets_an_errno_and_the_guest_goes_on(
    box: Any, guest: Any, expression: str, expected: Errno
) -> None:
    assert box.results(guest.results(expression, "(call $part_count)"), box.part(b"x")) == [-expected, 1]


def test_dimensions_that_are_negative_or_too_many_bytes_are_refused(box: Any, guest: Any) -> None:
    new = "(call $tensor_new (i32.const 1) (i32.const 2) {})"
    module = guest.results(
        new.format(guest.ints(-1, 5)),
        new.format(guest.ints(2**31 - 1, 2**31 - 1)),
        new.format(guest.ints(32 << 10, 32 << 10)),
        new.format(guest.ints(8 << 10, 8 << 10)),
    )
    results = box.results(module)
    assert results == [-Errno.EINVAL, -Errno.EOVERFLOW, -Errno.EOVERFLOW, -Errno.ENOMEM]


def test_a_unit_holds_so_many_tensors_and_no_more(box: Any, guest: Any) -> None:
    box.limit(tensors=2)
    new = "(call $tensor_new (i32.const 3) (i32.const 0) (i32.const 0))"
    first, second, third, _, again = box.results(
        guest.results(f"(local.tee $a {new})", new, new, "(call $tensor_drop (local.get $a))", new)
    )
    assert (first > 0, second > 0, third, again > 0) == (True, True, -Errno.EMFILE, True)


def test_a_handle_that_was_dropped_never_means_anything_else(box: Any, guest: Any) -> None:
    new = "(call $tensor_new (i32.const 3) (i32.const 0) (i32.const 0))"
    first, _, second, stale = box.results(
        guest.results(
            f"(local.tee $a {new})",
            "(call $tensor_drop (local.get $a))",
            new,
            "(call $tensor_info (local.get $a) (i32.const 8192))",
        )
    )
    assert first != second
    assert stale == -Errno.EBADF


def test_the_last_reply_counts_and_carries_its_tensors(box: Any, guest: Any) -> None:
    module = guest.wasm(
        f"(local.set $a (call $tensor_new (i32.const 4) (i32.const 1) {guest.ints(3)}))"
        "(i32.store (call $tensor_map (local.get $a) (i32.const 1)) (i32.const 9))"
        f"(drop (call $reply_tensor {guest.text('numbers')} (local.get $a)))"
        f"(drop (call $reply {guest.text('first')}))"
        f"(call $reply {guest.text('last')})"
    )
    run = box.handle(module)
    assert run.reply == b"last"
    assert list(run.reply_tensors) == ["numbers"]
    tensor = run.reply_tensors["numbers"]
    assert tensor.buffer.numpy().tolist() == [9, 0, 0]
    tensor.let_go()


def test_a_part_that_is_replied_outlives_the_request(box: Any, guest: Any) -> None:
    module = guest.wasm(
        f"(drop (call $reply_tensor {guest.text('echo')} (call $part_tensor (i32.const 0))))"
        f"(call $reply {guest.text('ok')})"
    )
    part = box.part(b"hello")
    tensor = box.handle(module, part).reply_tensors["echo"]
    assert tensor.buffer.offset != part.offset
    assert tensor.buffer.numpy().tobytes() == b"hello"
    tensor.let_go()


def test_a_reply_over_the_limit_is_refused(box: Any, guest: Any) -> None:
    box.limit(reply_bytes=10)
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        box.handle(guest.wasm("(call $reply (i32.const 0) (i32.const 11))"))


def test_a_reply_may_have_only_so_many_tensors(box: Any, guest: Any) -> None:
    module = guest.results(
        "(block (result i32) (local.set $a (call $tensor_new (i32.const 3) (i32.const 0) (i32.const 0)))"
        "(loop $next (i32.store8 (i32.const 8192) (local.get $b))"
        "(local.set $c (call $reply_tensor (i32.const 8192) (i32.const 1) (local.get $a)))"
        "(local.set $b (i32.add (local.get $b) (i32.const 1)))"
        "(br_if $next (i32.lt_u (local.get $b) (i32.const 65)))) (local.get $c))"
    )
    run = box.handle(module)
    assert run.reply == struct.pack("<i", -Errno.E2BIG)
    assert len(run.reply_tensors) == 64
    for tensor in run.reply_tensors.values():
        tensor.let_go()


def test_the_deadline_is_told_in_microseconds(box: Any, guest: Any) -> None:
    module = guest.wasm(
        "(i64.store (i32.const 8192) (call $deadline_us)) (call $reply (i32.const 8192) (i32.const 8))"
    )
    (left,) = struct.unpack("<q", replied(box.handle(module, seconds=100)))
    assert 50e6 < left <= 100e6


def test_log_lines_reach_the_units_log(box: Any, guest: Any) -> None:
    module = guest.results(*(f"(call $log (i32.const {n}) {guest.text(f'line {n}')})" for n in range(4)))
    assert box.results(module) == [0, 0, 0, 0]
    assert box.sink.lines == [(0, "line 0"), (1, "line 1"), (2, "line 2"), (3, "line 3")]


def test_mesh_reserve_may_not_call_the_host(box: Any, guest: Any) -> None:
    module = guest.results(
        "(call $part_map (i32.const 0))",
        "(i32.load (i32.const 64))",
        reserve="(i32.store (i32.const 64) (call $part_count)) (i32.const 65536)",
    )
    assert box.results(module, box.part(b"x")) == [65536, -Errno.EBUSY]


@pytest.mark.parametrize(
    ("reserve", "expected"),
    [
        ("(i32.const 0)", Errno.ENOMEM),
        ("(i32.const 4096)", Errno.EINVAL),
        ("(i32.const 0x10000000)", Errno.EINVAL),
        ("(i32.const -65536)", Errno.EINVAL),
    ],
)
def test_a_window_where_none_can_be_is_refused(box: Any, guest: Any, reserve: str, expected: Errno) -> None:
    module = guest.results("(call $part_map (i32.const 0))", reserve=reserve)
    assert box.results(module, box.part(b"x")) == [-expected]


def test_a_trap_in_mesh_reserve_ends_the_request(box: Any, guest: Any) -> None:
    module = guest.results("(call $part_map (i32.const 0))", reserve="unreachable")
    with pytest.raises(UnitFault, match="unreachable"):
        box.handle(module, box.part(b"x"))
