"""A real worker process, spoken to in frames."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from wasmtime import wat2wasm

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, DeviceError, ImageError, UnitFault, UsageError
from hailmesh.sandboxes.client import Reply
from hailmesh.sandboxes.protocol import GraphSpec, Job, Limits

SPIN = "(loop $forever (br $forever)) (i32.const 0)"


def job(*parts: Any, seconds: float = 60.0, **more: Any) -> Job:
    return Job(more.pop("id", "job"), parts, time.monotonic_ns() + int(seconds * 1e9), **more)


def test_a_job_goes_in_and_its_reply_comes_out(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            f"(drop (call $log (i32.const 2) {guest.text('careful')}))"
            f"(drop (call $emit {guest.text('one')})) (drop (call $emit {guest.text('two')}))"
            "(call $reply (call $part_map (i32.const 0)) (i32.const 5))"
        ),
        config={"labels": 3},
    )
    assert client.details["state"] == "loaded"
    *chunks, reply = client.events(client.start(job(workers.part(b"hello"))))
    assert chunks == [b"one", b"two"]
    assert isinstance(reply, Reply)
    assert reply.body == b"hello"
    assert set(reply.stages) == {"sandbox", "bridge", "kernel", "gate", "client"}
    assert client.logs == [("job", 2, "careful")]


def test_the_guest_gets_its_configuration_and_limits(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            "(if (i32.ne (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))"
            "(call $reply (i32.const 8192) (call $config (i32.const 8192) (i32.const 500)))"
        ),
        config={"labels": 3},
        limits=Limits(memory=1 << 20),
    )
    assert client.run(job()).body == b'{"labels":3}'


def test_reply_tensors_lie_in_the_arena_until_they_are_released(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            f"(local.set $a (call $tensor_new (i32.const 4) (i32.const 2) {guest.ints(1, 4_000_000)}))"
            "(i32.store (call $tensor_map (local.get $a) (i32.const 1)) (i32.const 77))"
            f"(drop (call $reply_tensor {guest.text('t')} (local.get $a)))"
            f"(call $reply {guest.text('ok')})"
        )
    )
    for number in range(5):
        # The span has room for one of them.
        reply = client.run(job(id=f"job-{number}"))
        (tensor,) = reply.tensors
        assert (tensor["name"], tensor["dtype"], tensor["shape"]) == ("t", 4, [1, 4_000_000])
        view = workers.arena.view(tensor["offset"], tensor["size"], DType.I32, (1, 4_000_000))
        assert view.numpy()[0, :2].tolist() == [77, 0]
        client.release(f"job-{number}")


def test_errors_arrive_as_what_they_are(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            "(if (i32.eq (call $part_count) (i32.const 1)) (then unreachable))"
            f"(if (i32.eq (call $part_count) (i32.const 2)) (then {SPIN.removesuffix('(i32.const 0)')}))"
            f"(drop (call $reply {guest.text('no such thing')})) (i32.const -28)"
        )
    )
    part = workers.part(b"x")
    with pytest.raises(UsageError, match="no such thing"):
        client.run(job())
    with pytest.raises(UnitFault, match="unreachable"):
        client.run(job(part))
    with pytest.raises(DeadlineExceeded):
        client.run(job(part, part, seconds=0.1))
    running = client.start(job(part, part, id="endless"))
    client.cancel("endless")
    with pytest.raises(Cancelled):
        list(client.events(running))


def test_jobs_run_side_by_side_in_their_slots(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            "(if (call $part_count) (then (drop (call $part_wait (i32.const 0) (i32.const 0)))))"
            f"(call $reply {guest.text('ok')})"
        ),
        slots=2,
    )
    waiting = client.start(job(workers.part(b"", room=10, streamed=True), id="waits"))
    assert client.run(job(id="quick")).body == b"ok"
    client.grow("waits", 0, 1, ended=True)
    (reply,) = client.events(waiting)
    assert isinstance(reply, Reply)
    assert reply.body == b"ok"
    assert reply.stages["client"] > 0


def test_a_slow_reader_holds_up_its_own_job_only(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            "(if (call $part_count) (then (loop $on"
            " (drop (call $emit (i32.const 0) (i32.const 65536)))"
            " (local.set $a (i32.add (local.get $a) (i32.const 1)))"
            " (br_if $on (i32.lt_u (local.get $a) (i32.const 50))))))"
            f"(call $reply {guest.text('ok')})"
        )
    )
    slow = client.events(client.start(job(workers.part(b"x"), id="slow")), acknowledge=False)
    for _ in range(5):
        assert len(next(slow)) == 65536
    assert client.run(job(id="other")).body == b"ok"
    client.acknowledge("slow", 5 * 65536)
    count = 5
    for event in slow:
        if isinstance(event, Reply):
            break
        client.acknowledge("slow", len(event))
        count += 1
    assert count == 50


def test_a_session_lives_in_the_worker_until_it_is_closed(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.results(
            "(block (result i32) (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))",
            extra="(global $n (mut i32) (i32.const 0))",
        ),
        session_lived=True,
    )
    count = [struct.unpack("<i", client.run(job(id=str(n), session="s")).body)[0] for n in range(3)]
    client.close_session("s")
    again = struct.unpack("<i", client.run(job(id="again", session="s")).body)[0]
    assert (count, again) == ([1, 2, 3], 1)


def test_random_numbers_follow_the_jobs_seed(workers: Any, guest: Any) -> None:
    client = workers.start(
        guest.wasm(
            "(drop (call $random_get (i32.const 8192) (i32.const 8)))"
            "(call $reply (i32.const 8192) (i32.const 8))"
        )
    )
    first, again, other = (client.run(job(id=str(n), seed=seed)).body for n, seed in enumerate((7, 7, 9)))
    assert first == again != other


def test_a_unit_that_can_not_load_says_why(workers: Any) -> None:
    wasm = wat2wasm("""(module (memory (export "memory") 1) (func (export "_initialize"))
        (func (export "mesh_abi") (result i32) (i32.const 7))
        (func (export "mesh_reserve") (param i32) (result i32) (i32.const 0))
        (func (export "mesh_handle") (result i32) (i32.const 0)))""")
    with pytest.raises(ImageError, match="version 7 of the unit ABI"):
        workers.start(bytes(wasm))


def test_a_unit_with_a_broken_graph_says_so(workers: Any, guest: Any) -> None:
    broken = os.memfd_create("graph")
    try:
        os.write(broken, b"not a graph")
        with pytest.raises(ImageError, match="ONNX"):
            workers.start(guest.wasm("(i32.const 0)"), graphs={"bad": GraphSpec(broken)})
    finally:
        os.close(broken)


@pytest.mark.parametrize(("memory", "fits"), [(64 << 20, False), (1 << 30, True)])
def test_a_model_gets_no_more_memory_than_its_unit_has(
    workers: Any, guest: Any, tmp_path: Path, memory: int, fits: bool
) -> None:
    """A few bytes of model ask for 768 MiB to compute one number."""
    ones = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph(
        [
            helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=ones),
            helper.make_node("ReduceMax", ["ones"], ["y"], keepdims=0),
        ],
        "bomb",
        [helper.make_tensor_value_info("shape", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    path = tmp_path / "bomb.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    module = guest.wasm(
        "(i32.store (i32.const 8192) (call $part_tensor (i32.const 0)))"
        f"(local.set $a (call $graph_run (call $graph {guest.text('bomb')})"
        " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1)))"
        f"(drop (call $reply {guest.text('ok')})) (local.get $a)"
    )
    size = workers.part((192 << 20).to_bytes(8, "little"), dtype=int(DType.I64), shape=(1,))
    limits = Limits(memory=1 << 20)
    with path.open("rb") as file:
        client = workers.start(
            module, graphs={"bomb": GraphSpec(file.fileno())}, memory=memory, limits=limits
        )
    if fits:
        assert client.run(job(size)).body == b"ok"
    else:
        with pytest.raises(DeviceError):
            client.run(job(size))


def test_graphs_run_before_anybody_waits_for_them(workers: Any, guest: Any, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "negate",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
    )
    path = tmp_path / "negate.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    shape = guest.ints(1, 2)
    with path.open("rb") as file:
        client = workers.start(
            guest.wasm(
                "(i32.store (i32.const 8192)"
                f" (call $tensor_new (i32.const 1) (i32.const 2) {shape}))"
                f"(drop (call $graph_run (call $graph {guest.text('g')})"
                " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1)))"
                f"(drop (call $reply_tensor {guest.text('y')} (i32.load (i32.const 8200))))"
                f"(call $reply {guest.text('ok')})"
            ),
            graphs={"g": GraphSpec(file.fileno())},
            memory=256 << 20,
        )
    assert client.details["graphs"]["g"]["inputs"] == [{"name": "x", "dtype": 1, "shape": [-1, 2]}]
    reply = client.run(job())
    assert [tensor["shape"] for tensor in reply.tensors] == [[1, 2]]
    assert reply.stages["kernel"] > 0


def test_a_worker_ends_with_its_socket() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "hailmesh.sandboxes.worker", "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
    ours.close()
    assert process.wait(60) == 0
