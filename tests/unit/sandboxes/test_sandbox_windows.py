"""Windows from the guest's side: what it can do through them, and what it can't."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from hailmesh.hail.errors import UnitFault
from hailmesh.sandboxes import capi
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    "scribble",
    [
        "(memory.fill (local.get $a) (i32.const 0xff) (i32.const 1048576))",
        "(memory.copy (local.get $a) (i32.const 0) (i32.const 65536))",
        "(i64.store (local.get $a) (i64.const -1))",
    ],
)
def test_writing_a_read_window_changes_the_guests_own_copy_only(box: Any, guest: Any, scribble: str) -> None:
    content = bytes(range(1, 201)) * (MEGABYTE // 200 + 1)
    part = box.part(content[:MEGABYTE])
    module = guest.wasm(
        f"(local.set $a (call $part_map (i32.const 0))) {scribble}(call $reply (local.get $a) (i32.const 8))"
    )
    assert box.handle(module, part).reply != content[:8], "the guest sees its own scribble"
    assert box.content(part) == content[:MEGABYTE]


def test_a_write_window_is_the_arena_itself(box: Any, guest: Any) -> None:
    module = guest.wasm(
        f"(local.set $a (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(100_000)}))"
        "(memory.fill (call $tensor_map (local.get $a) (i32.const 1)) (i32.const 7) (i32.const 100000))"
        f"(drop (call $reply_tensor {guest.text('t')} (local.get $a)))"
        f"(call $reply {guest.text('ok')})"
    )
    tensor = box.handle(module).reply_tensors["t"]
    assert tensor.buffer.numpy().tobytes() == b"\x07" * 100_000
    tensor.let_go()


def test_a_window_shows_nothing_beyond_its_tensor(box: Any, guest: Any) -> None:
    with box.arena.lease(65536, owner="another") as before:
        before.buffer.numpy()[...] = 0xEE
    module = guest.wasm(
        f"(local.set $a (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(1)}))"
        "(call $reply (call $tensor_map (local.get $a) (i32.const 0)) (i32.const 65536))"
    )
    assert box.handle(module).reply == bytes(65536)


def test_windows_are_put_back_before_the_memory_is_handed_on(box: Any, guest: Any) -> None:
    """Linear memory that is still mapped when a store is dropped could show the arena to its next owner."""
    secret = b"secret!!" * 8192
    part = box.part(secret)
    module = LinkedModule(
        guest.wasm(
            "(i32.store (i32.const 8192) (call $part_map (i32.const 0)))"
            f"(i32.store (i32.const 8196) (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(65536)}))"
            "(i32.store (i32.const 8200) (call $tensor_map (i32.load (i32.const 8196)) (i32.const 1)))"
            "(memory.fill (i32.load (i32.const 8200)) (i32.const 0x55) (i32.const 65536))"
            "(call $reply (i32.const 8192) (i32.const 12))"
        )
    )
    seen: list[bytes] = []

    class Watching:
        """wasmtime's functions, but a look at the windows comes before the store goes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(capi.api(), name)

        def store_delete(self, store: int) -> None:
            memory = instance._context.memory
            part_window, _, tensor_window = struct.unpack("<iii", memory.read(8192, 12))
            seen.extend(memory.read(window, 65536) for window in (part_window, tensor_window))
            capi.api().store_delete(store)

    with Instance(box.unit, module) as instance:
        instance._api = Watching()  # type: ignore[assignment]
        instance.handle(box.new_run(box.job(part)))
    assert seen == [bytes(65536), bytes(65536)]


def test_the_next_tenant_of_the_same_addresses_sees_zeros(box: Any, guest: Any) -> None:
    part = box.part(b"\xaa" * MEGABYTE)
    maps = LinkedModule(guest.wasm("(call $reply (call $part_map (i32.const 0)) (i32.const 64))"))
    reads = LinkedModule(guest.wasm("(call $reply (i32.const 262144) (i32.const 1048576))", pages=64))
    for _ in range(20):
        assert box.handle(maps, part).reply == b"\xaa" * 64
        assert box.handle(reads).reply == bytes(MEGABYTE)


def test_a_trap_with_windows_open_leaves_nothing_mapped(box: Any, guest: Any) -> None:
    part = box.part(b"\xaa" * MEGABYTE)
    maps = LinkedModule(guest.wasm("(drop (i32.load (call $part_map (i32.const 0)))) unreachable"))
    reads = LinkedModule(guest.wasm("(call $reply (i32.const 262144) (i32.const 1048576))", pages=64))
    for _ in range(20):
        with pytest.raises(UnitFault):
            box.handle(maps, part)
        assert box.handle(reads).reply == bytes(MEGABYTE)


def test_dropping_a_mapped_tensor_unmaps_it(box: Any, guest: Any) -> None:
    """Its block may be leased to somebody else at once."""
    module = guest.results(
        f"(local.tee $a (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(64)}))",
        "(local.tee $b (call $tensor_map (local.get $a) (i32.const 1)))",
        "(block (result i32) (i32.store (local.get $b) (i32.const 5)) (i32.const 0))",
        "(call $tensor_drop (local.get $a))",
        "(i32.load (local.get $b))",
        f"(local.tee $c (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(64)}))",
        "(block (result i32) (i32.store (local.get $b) (i32.const 6)) (i32.const 0))",
        "(i32.load (call $tensor_map (local.get $c) (i32.const 0)))",
    )
    *_, gone, handle, _, fresh = box.results(module)
    assert handle > 0
    assert (gone, fresh) == (0, 0)


def test_windows_never_overlap(box: Any, guest: Any) -> None:
    from hailmesh.sandboxes.errno import Errno

    module = guest.results(
        "(i32.gt_s (call $part_map (i32.const 0)) (i32.const 0))",
        "(call $part_map (i32.const 1))",
        reserve="(i32.const 131072)",
    )
    assert box.results(module, box.part(b"x"), box.part(b"y")) == [1, -Errno.EINVAL]


def test_what_a_session_has_replied_it_can_no_longer_change(box: Any, guest: Any) -> None:
    module = LinkedModule(
        guest.wasm(
            "(if (i32.eqz (global.get $window)) (then"
            f" (local.set $a (call $tensor_new (i32.const 4) (i32.const 1) {guest.ints(1)}))"
            " (global.set $window (call $tensor_map (local.get $a) (i32.const 1)))"
            " (i32.store (global.get $window) (i32.const 1))"
            f" (drop (call $reply_tensor {guest.text('n')} (local.get $a))))"
            " (else (i32.store (global.get $window) (i32.const 2))))"
            "(call $reply (global.get $window) (i32.const 4))",
            extra="(global $window (mut i32) (i32.const 0))",
        )
    )
    with Instance(box.unit, module) as instance:
        first, second = (box.new_run(box.job(id=name, session="s")) for name in ("first", "second"))
        instance.handle(first)
        instance.handle(second)
        assert (first.reply, second.reply) == (b"\1\0\0\0", b"\2\0\0\0"), "it sees its own scribble"
        assert first.reply_tensors["n"].buffer.numpy().tolist() == [1]
        first.drop_tensors()
