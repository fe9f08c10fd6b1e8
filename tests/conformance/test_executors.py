"""What every graph executor does, whichever runtime is behind it and wherever the graph comes from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import (
    Cancelled,
    DeadlineExceeded,
    Denied,
    DeviceError,
    ImageError,
    Unsupported,
    UsageError,
)
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import BEST_EFFORT, Lane
from hailmesh.kernels.executor import Executor
from hailmesh.kernels.onnx import OnnxExecutor

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
Load = Callable[..., Executor]


class Memory:
    """Leases from one arena, released together."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.leases: list[Lease] = []

    def allocate(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.leases.append(self.arena.lease(nbytes, owner="test", dtype=dtype, shape=shape))
        return self.leases[-1].buffer

    def holding(self, array: np.ndarray) -> Buffer:
        buffer = self.allocate(DType.of(array.dtype), array.shape)
        buffer.numpy()[...] = array
        return buffer


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Arena.create(64 << 20) as arena:
        memory = Memory(arena)
        yield memory
        for lease in memory.leases:
            lease.release()


@pytest.fixture
def gates(memory: Memory) -> Callable[[int], Gate]:
    page = memory.allocate(DType.U8, (65536,))
    return lambda row: Gate(page.address, row)


def from_path(path: Path, lane: Lane, **options: Any) -> Executor:
    return OnnxExecutor(path, threads=1, lane=lane, name="test", **options)


def from_descriptor(path: Path, lane: Lane, **options: Any) -> Executor:
    with path.open("rb") as file:
        return OnnxExecutor(file.fileno(), threads=1, lane=lane, name="test", **options)


def on_two_threads(path: Path, lane: Lane, **options: Any) -> Executor:
    return OnnxExecutor(path, threads=2, lane=lane, name="test", **options)


@pytest.fixture(params=[from_path, from_descriptor, on_two_threads])
def load(request: pytest.FixtureRequest, tmp_path: Path, gates: Any) -> Iterator[Load]:
    executors = []

    def load(model: onnx.ModelProto, **options: Any) -> Executor:
        path = tmp_path / f"{len(executors)}.onnx"
        path.write_bytes(model.SerializeToString())
        executors.append(request.param(path, Lane(BEST_EFFORT, (), gates(0), False), **options))
        return executors[-1]

    yield load
    for executor in executors:
        executor.close()


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, tuple[int, Any]],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    def values(named: dict[str, tuple[int, Any]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in named.items()]

    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", values(inputs), values(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def scaling() -> onnx.ModelProto:
    """y = 2x, z = x + 1, of any number of rows."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"]), helper.make_node("Add", ["x", "one"], ["z"])]
    shape = (F32, ["N", 3])
    weights = {"two": np.float32(2), "one": np.float32(1)}
    return model(nodes, {"x": shape}, {"y": shape, "z": shape}, weights)


def positive() -> onnx.ModelProto:
    """The positions of the elements that aren't 0: how many depends on the data."""
    return model([helper.make_node("NonZero", ["x"], ["at"])], {"x": (F32, ["N"])}, {"at": (I64, [1, "M"])})


def endless() -> onnx.ModelProto:
    """Counts as far as it is told."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["sum", "x"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", I64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", F32, [1]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", F32, [1]),
        ],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    return model([loop], {"x": (F32, [1]), "count": (I64, [])}, {"y": (F32, [1])})


def run(executor: Executor, memory: Memory, *arrays: np.ndarray, **options: Any) -> list[Buffer | None]:
    count = len(executor.outputs)
    return executor.run(
        [memory.holding(array) for array in arrays],
        options.get("outputs", [None] * count),
        memory.allocate,
        options.get("wanted", [True] * count),
        options.get("token", CancelToken()),
        options.get("level", 0),
    )


def rows(count: int) -> np.ndarray:
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3)


@pytest.mark.parametrize("count", [1, 5, 4000])
def test_outputs_are_computed_into_fresh_buffers(load: Load, memory: Memory, count: int) -> None:
    executor = load(scaling())
    y, z = run(executor, memory, rows(count))
    assert y is not None and z is not None
    np.testing.assert_array_equal(y.numpy(), rows(count) * 2)
    np.testing.assert_array_equal(z.numpy(), rows(count) + 1)


def test_given_outputs_are_filled_in_place_and_unwanted_ones_left_out(load: Load, memory: Memory) -> None:
    executor = load(scaling())
    given = memory.allocate(DType.F32, (2, 3))
    before = len(memory.leases)
    y, z = run(executor, memory, rows(2), outputs=[None, given], wanted=[False, True])
    assert y is None
    assert z is given
    np.testing.assert_array_equal(given.numpy(), rows(2) + 1)
    assert len(memory.leases) == before + 1, "only the input was leased"


def test_nothing_wanted_computes_nothing(load: Load, memory: Memory) -> None:
    assert run(load(scaling()), memory, rows(2), wanted=[False, False]) == [None, None]


def test_shapes_that_depend_on_the_data_come_out_right_every_time(load: Load, memory: Memory) -> None:
    executor = load(positive())
    for pattern in ([1, 0, 2], [1, 0, 2], [0, 0, 0], [1, 1, 1], [0, 3, 0], [0, 3, 0]):
        (at,) = run(executor, memory, np.array(pattern, np.float32))
        assert at is not None
        np.testing.assert_array_equal(at.numpy(), np.nonzero(pattern))


def test_an_output_given_for_a_shape_that_only_the_run_tells(load: Load, memory: Memory) -> None:
    executor = load(positive())
    for _ in range(2):
        given = memory.allocate(DType.I64, (1, 2))
        assert run(executor, memory, np.array([1, 0, 2], np.float32), outputs=[given]) == [given]
        np.testing.assert_array_equal(given.numpy(), [[0, 2]])
        small = memory.allocate(DType.I64, (1, 1))
        with pytest.raises(UsageError, match=r"output 'at': expected i64 \[1, 2\], got i64 \[1, 1\]"):
            run(executor, memory, np.array([1, 0, 2], np.float32), outputs=[small])
        assert not small.numpy().any()


def test_an_output_that_is_its_input_unchanged_is_copied(load: Load, memory: Memory) -> None:
    same = helper.make_node("Identity", ["x"], ["y"])
    executor = load(model([same], {"x": (F32, ["N", 3])}, {"y": (F32, ["N", 3])}))
    given = memory.allocate(DType.F32, (4, 3))
    run(executor, memory, rows(4), outputs=[given])
    np.testing.assert_array_equal(given.numpy(), rows(4))


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (rows(2).astype(np.float64), r"input 'x': expected f32 \[any, 3\], got f64 \[2, 3\]"),
        (rows(2)[:, :2].copy(), r"input 'x': expected f32 \[any, 3\], got f32 \[2, 2\]"),
        (rows(2).reshape(-1), r"got f32 \[6\]"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_name(
    load: Load, memory: Memory, array: Any, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        run(load(scaling()), memory, array)


def test_an_output_that_does_not_fit_is_refused_by_name(load: Load, memory: Memory) -> None:
    executor = load(scaling())
    wrong = memory.allocate(DType.F32, (3, 3))
    with pytest.raises(UsageError, match=r"output 'z': expected f32 \[2, 3\], got f32 \[3, 3\]"):
        run(executor, memory, rows(2), outputs=[None, wrong])
    with pytest.raises(UsageError, match="got f64"):
        run(executor, memory, rows(2), outputs=[None, memory.allocate(DType.F64, (2, 3))])


def test_too_few_tensors_are_refused_with_the_names_of_all(load: Load, memory: Memory) -> None:
    executor = load(scaling())
    with pytest.raises(UsageError, match=r"expected 1 inputs \(x\), got 0"):
        run(executor, memory)
    with pytest.raises(UsageError, match=r"expected 2 outputs \(y, z\), got 1"):
        run(executor, memory, rows(1), outputs=[None])


def test_a_run_that_fails_is_one_error_and_the_next_succeeds(load: Load, memory: Memory) -> None:
    gather = helper.make_node("Gather", ["table", "i"], ["y"])
    table = np.arange(5, dtype=np.float32)
    executor = load(model([gather], {"i": (I64, ["N"])}, {"y": (F32, ["N"])}, {"table": table}))
    with pytest.raises(DeviceError, match="test") as caught:
        run(executor, memory, np.array([9]))
    assert "\n" not in str(caught.value)
    (y,) = run(executor, memory, np.array([4, 0]))
    assert y is not None
    np.testing.assert_array_equal(y.numpy(), [4, 0])


def test_cancelling_ends_a_run_in_progress(load: Load, memory: Memory, gates: Any) -> None:
    executor = load(endless(), loops=True)
    token, other = CancelToken(), gates(1)
    arrays = np.ones(1, np.float32), np.array(2**62)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(run, executor, memory, *arrays, token=token, level=2)
        while not other.busy_above(1):
            assert not started.done()
        token.cancel()
        with pytest.raises(Cancelled):
            started.result(60)
    (y,) = run(executor, memory, np.ones(1, np.float32), np.array(10))
    assert y is not None
    assert y.numpy() == [11]


def test_the_deadline_ends_a_run_in_progress(load: Load, memory: Memory) -> None:
    executor = load(endless(), loops=True)
    token = CancelToken(time.monotonic_ns() + 50_000_000)
    with pytest.raises(DeadlineExceeded):
        run(executor, memory, np.ones(1, np.float32), np.array(2**62), token=token)


def test_what_is_over_does_not_start(load: Load, memory: Memory) -> None:
    executor = load(scaling())
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        run(executor, memory, rows(1), token=token)
    with pytest.raises(DeadlineExceeded):
        run(executor, memory, rows(1), token=CancelToken(time.monotonic_ns() - 1))


def test_a_run_waits_at_the_gate_for_more_urgent_work_only(load: Load, memory: Memory, gates: Any) -> None:
    executor = load(scaling())
    other = gates(1)
    other.enter(5, CancelToken())
    run(executor, memory, rows(1), level=6)
    with pytest.raises(DeadlineExceeded):
        run(executor, memory, rows(1), level=4, token=CancelToken(time.monotonic_ns() + 20_000_000))
    other.leave(5)
    run(executor, memory, rows(1), level=4)


def test_runs_of_several_threads_keep_their_results_apart(load: Load, memory: Memory) -> None:
    executor = load(scaling())
    lock = threading.Lock()

    def several(seed: int) -> None:
        for count in range(1, 20):
            array = np.full((count, 3), seed, np.float32)
            with lock:  # the arena's leases are listed here, unlocked
                given = [memory.allocate(DType.F32, (count, 3)) for _ in range(2)]
                held = memory.holding(array)
            executor.run([held], given, memory.allocate, [True, True], CancelToken(), 0)
            np.testing.assert_array_equal(given[0].numpy(), array * 2)
            np.testing.assert_array_equal(given[1].numpy(), array + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(several, range(4)))


def test_all_element_types_pass_unchanged(load: Load, memory: Memory) -> None:
    for dtype in DType:
        kind = helper.np_dtype_to_tensor_dtype(dtype.numpy)
        same = helper.make_node("Identity", ["x"], ["y"])
        executor = load(model([same], {"x": (kind, ["N"])}, {"y": (kind, ["N"])}))
        array = np.array([0, 1, 1, 0]).astype(dtype.numpy)
        (y,) = run(executor, memory, array)
        assert y is not None
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.numpy(), array)


def test_loops_are_refused_unless_allowed(load: Load) -> None:
    with pytest.raises(Denied, match="Loop"):
        load(endless())


def test_strings_are_not_for_units(load: Load) -> None:
    same = helper.make_node("Identity", ["x"], ["y"])
    kind = (TensorProto.STRING, ["N"])
    with pytest.raises(Unsupported, match=r"'x' is tensor\(string\)"):
        load(model([same], {"x": kind}, {"y": kind}))


def test_a_graph_that_can_not_run_is_an_image_error(load: Load) -> None:
    wrong = helper.make_node("MatMul", ["x"], ["y"])
    with pytest.raises(ImageError, match="test"):
        load(model([wrong], {"x": (F32, ["N"])}, {"y": (F32, ["N"])}))
