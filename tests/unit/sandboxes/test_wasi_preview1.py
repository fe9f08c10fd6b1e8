"""The small WASI that units get: what works, and what is refused."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from hailmesh.hail.errors import ImageError, UnitFault
from hailmesh.sandboxes.errno import Errno
from hailmesh.sandboxes.module import LinkedModule


def printing(guest: Any, *pieces: bytes, fd: int = 1) -> str:
    """An expression that writes the pieces in one fd_write."""
    vector = guest.ints(*(word for piece in pieces for word in (guest.at(piece), len(piece))))
    return f"(call $fd_write (i32.const {fd}) {vector} (i32.const {len(pieces)}) (i32.const 8192))"


def test_output_and_errors_become_log_lines(box: Any, guest: Any) -> None:
    module = guest.results(
        printing(guest, b"hello ", b"wor"),
        "(i32.load (i32.const 8192))",
        printing(guest, b"ld\nbegun"),
        printing(guest, b"oh no\n", fd=2),
    )
    assert box.results(module) == [0, 9, 0, 0]
    assert box.sink.lines == [(1, "hello world"), (2, "oh no"), (1, "begun")]


def test_output_that_is_no_text_is_shown_as_well_as_it_can_be(box: Any, guest: Any) -> None:
    box.results(guest.results(printing(guest, b"a\xff\0b\n")))
    assert box.sink.lines == [(1, "a�\0b")]


def test_a_flood_of_output_is_cut_and_costs_the_unit_nothing(box: Any, guest: Any) -> None:
    box.limit(log_bytes=1000)
    write = printing(guest, b"x" * 99 + b"\n")
    module = guest.wasm(
        f"(loop $on (drop {write}) (local.set $a (i32.add (local.get $a) (i32.const 1)))"
        "(br_if $on (i32.lt_u (local.get $a) (i32.const 5000)))) "
        f"(call $reply {guest.text('ok')})"
    )
    assert box.handle(module).reply == b"ok"
    assert box.sink.lines[-1] == (2, "the log of this request is over its limit; the rest is dropped")
    assert [line for _, line in box.sink.lines[:-1]] == ["x" * 99] * 10


def test_output_without_line_ends_is_cut_too(box: Any, guest: Any) -> None:
    box.limit(log_bytes=1 << 20)
    module = guest.results(
        "(block (result i32) (i32.store (i32.const 8196) (i32.const 131072))"
        "(i32.store (i32.const 8200) (i32.const 100000))"
        "(call $fd_write (i32.const 1) (i32.const 8196) (i32.const 1) (i32.const 8192)))"
    )
    assert box.results(module) == [0]
    assert max(len(line) for _, line in box.sink.lines) == 4096
    assert sum(len(line) for _, line in box.sink.lines) == 100_000


def test_random_numbers_are_replayed_by_the_jobs_seed(box: Any, guest: Any) -> None:
    module = LinkedModule(
        guest.wasm(
            "(drop (call $random_get (i32.const 8192) (i32.const 16)))"
            "(drop (call $random_get (i32.const 8208) (i32.const 16)))"
            "(call $reply (i32.const 8192) (i32.const 32))"
        )
    )
    first, again, other = (box.handle(module, seed=seed).reply for seed in (7, 7, 8))
    assert first == again != other
    assert first is not None
    assert first[:16] != first[16:] != bytes(16)


def test_monotonic_time_passes_and_real_time_is_coarse(box: Any, guest: Any) -> None:
    module = guest.wasm(
        "(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 8192)))"
        "(drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 8200)))"
        "(drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 8208)))"
        "(drop (call $clock_res_get (i32.const 0) (i32.const 8216)))"
        "(call $reply (i32.const 8192) (i32.const 32))"
    )
    before = time.monotonic_ns()
    real, first, second, resolution = struct.unpack("<4Q", box.handle(module).reply)
    assert before <= first <= second <= time.monotonic_ns()
    assert real % 1_000_000_000 == 0
    assert abs(real / 1e9 - time.time()) < 60
    assert resolution == 1_000_000_000


def test_there_are_no_arguments_no_environment_and_no_files(box: Any, guest: Any) -> None:
    module = guest.results(
        "(call $args_sizes_get (i32.const 8192) (i32.const 8196))",
        "(i32.load (i32.const 8192))",
        "(call $environ_sizes_get (i32.const 8192) (i32.const 8196))",
        "(i32.load (i32.const 8192))",
        "(call $fd_prestat_get (i32.const 3) (i32.const 8192))",
        "(call $fd_read (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 8192))",
        "(call $fd_close (i32.const 1))",
        "(call $fd_write (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 8192))",
        "(call $fd_fdstat_get (i32.const 0) (i32.const 8192))",
        "(call $fd_seek (i32.const 1) (i64.const 0) (i32.const 0) (i32.const 8192))",
        "(call $sched_yield)",
    )
    bad = int(Errno.EBADF)
    assert box.results(module) == [0, 0, 0, 0, bad, bad, bad, bad, bad, bad, 0]


def test_standard_output_looks_like_a_terminal(box: Any, guest: Any) -> None:
    """So that C libraries write line by line, and a trap loses nothing that was printed."""
    module = guest.results(
        "(call $fd_fdstat_get (i32.const 1) (i32.const 8192))", "(i32.load8_u (i32.const 8192))"
    )
    assert box.results(module) == [0, 2]


def test_a_unit_can_not_sleep(box: Any, guest: Any) -> None:
    module = guest.results("(call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8192))")
    assert box.results(module) == [Errno.ENOSYS]


def test_exit_ends_the_request(box: Any, guest: Any) -> None:
    with pytest.raises(UnitFault, match=r"exit\(3\)"):
        box.handle(guest.wasm("(call $proc_exit (i32.const 3)) (i32.const 0)"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(call $fd_write (i32.const 1) (i32.const 0x7fffff00) (i32.const 1) (i32.const 0))", Errno.EFAULT),
        ("(call $fd_write (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0))", Errno.E2BIG),
        ("(call $random_get (i32.const -8) (i32.const 16))", Errno.EFAULT),
        ("(call $random_get (i32.const 0) (i32.const -1))", Errno.EINVAL),
        ("(call $clock_time_get (i32.const 9) (i64.const 0) (i32.const 8192))", Errno.EINVAL),
        ("(call $clock_time_get (i32.const 1) (i64.const 0) (i32.const -4))", Errno.EFAULT),
        ("(call $args_sizes_get (i32.const -4) (i32.const 0))", Errno.EFAULT),
    ],
)
def test_nonsense_gets_a_positive_errno(box: Any, guest: Any, expression: str, expected: Errno) -> None:
    assert box.results(guest.results(expression)) == [expected]


def test_files_and_sockets_can_not_even_be_imported() -> None:
    from wasmtime import wat2wasm

    for name in ("path_open", "sock_send", "fd_readdir"):
        wasm = wat2wasm(f'(module (import "wasi_snapshot_preview1" "{name}" (func)))')
        with pytest.raises(ImageError, match=name):
            LinkedModule(bytes(wasm))
