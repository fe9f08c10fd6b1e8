"""How a request ends in a sandbox, and what the next one sees of it."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

import pytest

from hailmesh.hail.errors import (
    DeadlineExceeded,
    ImageError,
    MeshError,
    NotFound,
    OutOfArena,
    TooLarge,
    UnitFault,
    Unsupported,
    UsageError,
)
from hailmesh.sandboxes.errno import Errno
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.module import LinkedModule

SPIN = "(loop $forever (br $forever)) (i32.const 0)"


def test_a_fresh_instance_sees_nothing_of_the_one_before(box: Any, guest: Any) -> None:
    module = LinkedModule(
        guest.results(
            "(global.get $mine)",
            "(i32.load (i32.const 131072))",
            "(block (result i32) (global.set $mine (i32.const 5)) (i32.const 0))",
            "(block (result i32) (i32.store (i32.const 131072) (i32.const 6)) (i32.const 0))",
            extra="(global $mine (mut i32) (i32.const 1))",
        )
    )
    assert box.results(module)[:2] == [1, 0]
    assert box.results(module)[:2] == [1, 0]


def test_initialisation_runs_before_the_request(box: Any, guest: Any) -> None:
    module = guest.results("(i32.load (i32.const 64))", initialize="(i32.store (i32.const 64) (i32.const 3))")
    assert box.results(module) == [3]


@pytest.mark.parametrize(
    ("errno", "kind"),
    [
        (Errno.EINVAL, UsageError),
        (Errno.E2BIG, TooLarge),
        (Errno.ENOTSUP, Unsupported),
        (Errno.ENOENT, NotFound),
        (Errno.EIO, UnitFault),
    ],
)
def test_a_refusal_carries_the_units_own_words(
    box: Any, guest: Any, errno: Errno, kind: type[MeshError]
) -> None:
    module = guest.wasm(f"(drop (call $reply {guest.text('not a picture')})) (i32.const {-errno})")
    with pytest.raises(kind, match="not a picture") as caught:
        box.handle(module)
    assert type(caught.value) is kind


def test_what_the_host_told_the_unit_is_told_to_the_caller(box: Any, guest: Any) -> None:
    module = guest.wasm(f"(call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(80 << 20)})")
    with pytest.raises(OutOfArena, match="83886080"):
        box.handle(module)


def test_returning_without_a_reply_is_the_units_fault(box: Any, guest: Any) -> None:
    with pytest.raises(UnitFault, match="without a reply"):
        box.handle(guest.wasm("(i32.const 0)"))


def test_a_positive_result_is_the_units_fault(box: Any, guest: Any) -> None:
    with pytest.raises(UnitFault, match="error 3"):
        box.handle(guest.wasm("(i32.const 3)"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("unreachable", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "divide by zero"),
        ("(i32.load (i32.const -4))", "out of bounds memory access"),
        ("(call $deep (i32.const 0))", "call stack exhausted"),
    ],
)
def test_a_trap_says_what_happened_and_where(box: Any, guest: Any, body: str, words: str) -> None:
    extra = "(func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))"
    with pytest.raises(UnitFault, match=f"unit test trapped: .*{words}"):
        box.handle(guest.wasm(body, extra=extra))


def test_a_spinning_guest_ends_at_its_deadline_while_another_goes_on(box: Any, guest: Any) -> None:
    module = LinkedModule(
        guest.wasm(
            "(if (i32.eqz (call $part_count)) (then (loop $forever (br $forever))))"
            f"(call $reply {guest.text('done')})"
        )
    )
    part = box.part(b"x")
    ends: list[BaseException] = []

    def spin() -> None:
        try:
            box.handle(module, seconds=0.3)
        except MeshError as error:
            ends.append(error)

    spinning = threading.Thread(target=spin)
    spinning.start()
    others = 0
    while spinning.is_alive():
        assert box.handle(module, part).reply == b"done"
        others += 1
    spinning.join()
    assert [type(error) for error in ends] == [DeadlineExceeded]
    assert others > 1


def test_many_spinning_guests_all_end(box: Any, guest: Any) -> None:
    """None may miss its interruption because another was due in the same moment."""
    module = LinkedModule(guest.wasm(SPIN))
    ends: list[type] = []

    def spin(seconds: float) -> None:
        for _ in range(5):
            try:
                box.handle(module, seconds=seconds)
            except MeshError as error:
                ends.append(type(error))

    threads = [threading.Thread(target=spin, args=(0.01 + 0.001 * (n % 3),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [DeadlineExceeded] * 30


def test_guests_are_interrupted_after_a_time_without_any(
    box: Any, guest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that watches them ends when it has none, and comes back."""
    monkeypatch.setattr("hailmesh.sandboxes.epochs.LINGER", 0.01)
    module = LinkedModule(guest.wasm(SPIN))
    for _ in range(3):
        with pytest.raises(DeadlineExceeded):
            box.handle(module, seconds=0.02)
        end = time.monotonic() + 30
        while module.epochs._thread is not None:
            assert time.monotonic() < end
            threading.Event().wait(0.005)


def test_a_deadline_ends_initialisation_too(box: Any, guest: Any) -> None:
    module = guest.wasm("(i32.const 0)", initialize="(loop $forever (br $forever))")
    with pytest.raises(DeadlineExceeded):
        box.handle(module, seconds=0.05)


def test_a_guest_that_spins_on_host_calls_ends_too(box: Any, guest: Any) -> None:
    module = guest.wasm("(loop $on (drop (call $part_count)) (br $on)) (i32.const 0)")
    with pytest.raises(DeadlineExceeded):
        box.handle(module, seconds=0.05)


def test_host_calls_of_one_request_are_bounded(box: Any, guest: Any) -> None:
    box.limit(host_calls=100)
    calls = "(loop $on (drop (call $part_count)) (local.set $a (i32.add (local.get $a) (i32.const 1)))"
    module = guest.wasm(
        calls + "(br_if $on (i32.lt_u (local.get $a) (i32.const 99))))" + f"(call $reply {guest.text('ok')})"
    )
    assert box.handle(module).reply == b"ok"
    module = guest.wasm(calls + "(br $on)) (i32.const 0)")
    with pytest.raises(UnitFault, match="more than 100 host calls"):
        box.handle(module)


def test_memory_grows_to_its_limit_and_no_further(box: Any, guest: Any) -> None:
    box.limit(memory=1 << 20)
    module = guest.results("(memory.grow (i32.const 12))", "(memory.grow (i32.const 1))", "(memory.size)")
    assert box.results(module) == [4, -1, 16]


def test_a_trap_near_the_memory_limit_mentions_it(box: Any, guest: Any) -> None:
    box.limit(memory=1 << 20)
    with pytest.raises(UnitFault, match="of its 1048576 bytes of memory"):
        box.handle(guest.wasm("(drop (memory.grow (i32.const 12))) unreachable"))


def test_a_module_that_starts_above_its_memory_limit_is_a_fault(box: Any, guest: Any) -> None:
    box.limit(memory=1 << 20)
    with pytest.raises(UnitFault, match="can't be instantiated"):
        box.handle(guest.wasm("(i32.const 0)", pages=17))


def test_a_module_of_another_abi_is_refused(box: Any) -> None:
    from wasmtime import wat2wasm

    module = LinkedModule(
        wat2wasm("""(module (memory (export "memory") 1) (func (export "_initialize"))
        (func (export "mesh_abi") (result i32) (i32.const 2))
        (func (export "mesh_reserve") (param i32) (result i32) (i32.const 0))
        (func (export "mesh_handle") (result i32) (i32.const 0)))""")
    )
    with Instance(box.unit, module) as instance, pytest.raises(ImageError, match="version 2"):
        instance.check_abi(box.new_run(box.job()))


def test_leases_return_however_a_request_ends(box: Any, guest: Any) -> None:
    start = box.arena.count
    new = f"(call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(9)})"
    take = f"(drop (call $tensor_map {new} (i32.const 1)))"
    endings = {
        "(i32.const -28)": UsageError,
        "unreachable": UnitFault,
        SPIN: DeadlineExceeded,
        "(i32.const 0)": UnitFault,
    }
    for ending, kind in endings.items():
        with pytest.raises(kind):
            box.handle(guest.wasm(take + ending), seconds=0.5)
        assert box.arena.count == start
    box.handle(guest.wasm(take + f"(call $reply {guest.text('ok')})"))
    assert box.arena.count == start


def test_a_cancelled_guest_stops_and_gives_back_what_it_had(box: Any, guest: Any) -> None:
    take = f"(drop (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(9)}))"
    module = LinkedModule(guest.wasm(take + f"(drop (call $emit {guest.text('here')}))" + SPIN))
    run = box.new_run(box.job())
    ends: list[MeshError] = []

    def handle() -> None:
        with Instance(box.unit, module) as instance:
            try:
                instance.handle(run)
            except MeshError as error:
                ends.append(error)

    thread = threading.Thread(target=handle)
    thread.start()
    deadline = time.monotonic() + 30
    while not box.sink.chunks and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    run.cancel()
    thread.join()
    assert [error.code for error in ends] == ["cancelled"]
    assert box.arena.count == 0


def test_two_threads_that_err_in_host_calls_each_get_their_own_error(box: Any, guest: Any) -> None:
    """wasmtime's Python bindings keep one exception for the whole process; ours never pass through it."""
    bodies = {
        "graph": f"(call $graph {guest.text('nowhere')})",
        "part": "(call $part_info (i32.const 41) (i32.const 8192) (i32.const 8))",
    }
    module = {name: LinkedModule(guest.wasm(body)) for name, body in bodies.items()}
    expected = {"graph": (NotFound, "no graph 'nowhere'"), "part": (UsageError, "no part 41")}
    wrong: list[str] = []

    def err(name: str) -> None:
        kind, words = expected[name]
        for _ in range(500):
            try:
                box.handle(module[name])
            except MeshError as error:
                if type(error) is not kind or words not in str(error):
                    wrong.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=err, args=(name,)) for name in bodies for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_stages_tell_where_the_time_went(box: Any, guest: Any) -> None:
    reply = f"(call $reply {guest.text('x')})"
    busy = box.handle(
        guest.wasm(
            "(loop $on (local.set $a (i32.add (local.get $a) (i32.const 1)))"
            "(br_if $on (i32.lt_u (local.get $a) (i32.const 50000000))))" + reply
        )
    ).stages
    chatty = box.handle(
        guest.wasm(
            "(loop $on (drop (call $config (i32.const 8192) (i32.const 8)))"
            "(local.set $a (i32.add (local.get $a) (i32.const 1)))"
            "(br_if $on (i32.lt_u (local.get $a) (i32.const 20000))))" + reply
        )
    ).stages
    assert busy.sandbox > busy.bridge
    assert chatty.bridge > 20 * busy.bridge
    assert busy.kernel == busy.gate == 0


def test_a_session_lived_instance_keeps_its_state_between_runs(box: Any, guest: Any) -> None:
    module = LinkedModule(
        guest.results(
            "(block (result i32) (global.set $seen (i32.add (global.get $seen) (i32.const 1)))"
            " (global.get $seen))",
            "(i32.load8_u (call $part_map (i32.const 0)))",
            "(local.tee $a (call $part_tensor (i32.const 0)))",
            extra="(global $seen (mut i32) (i32.const 0))",
        )
    )
    seen = []
    with Instance(box.unit, module) as instance:
        for number in range(3):
            run = box.new_run(box.job(box.part(bytes([number]))))
            instance.handle(run)
            seen.append(struct.unpack("<iii", run.reply or b""))
            box.forget_parts()
    assert [(count, byte) for count, byte, _ in seen] == [(1, 0), (2, 1), (3, 2)]
    assert len({handle for _, _, handle in seen}) == 3, "a part's handle ends with its run"


def test_a_session_maps_its_parts_into_the_same_space_run_after_run(box: Any, guest: Any) -> None:
    """Or a long session would use up its memory, which the guest can't free while it is mapped."""
    box.limit(memory=1 << 20)
    module = LinkedModule(
        guest.results("(i32.load8_u (call $part_map (i32.const 0)))", "(call $part_map (i32.const 0))")
    )
    seen = []
    with Instance(box.unit, module) as instance:
        for number in range(50):
            run = box.new_run(box.job(box.part(bytes([number]))))
            instance.handle(run)
            seen.append(struct.unpack("<ii", run.reply or b""))
            box.forget_parts()
    assert [byte for byte, _ in seen] == list(range(50))
    assert len({window for _, window in seen}) == 1
