"""What a sequence graph must look like, and that stale keys and values stay out of the way."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import ImageError, OutOfArena
from hailmesh.kernels.contract import SequenceContract
from hailmesh.kernels.kv import KeyValues
from hailmesh.kernels.onnx import open_session
from hailmesh.kernels.steps import Steps

ROWS, SLOTS = 24, 3
Read = Callable[[onnx.ModelProto], SequenceContract]


@pytest.fixture
def session(save: Any) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: open_session(save(model), threads=1, spin=False, loops=False, name="tiny")


@pytest.fixture
def read(session: Any) -> Read:
    return lambda model: SequenceContract.of(session(model), "tiny")


def test_everything_is_read_off_the_graph(read: Read, decoder: Any) -> None:
    contract = read(decoder.graph())
    assert contract.caches == ("0.k", "0.v", "1.k", "1.v")
    assert (contract.heads, contract.rows, contract.head_size) == (2, -1, 16)
    assert contract.cache_dtype == DType.F32
    assert (contract.vocabulary, contract.batched, contract.bound, contract.positions) == (61, True, (), None)


def test_further_inputs_are_bound_ones_and_exclude_batches(read: Read, cross_decoder: Any) -> None:
    contract = read(cross_decoder.graph())
    assert [spec.name for spec in contract.bound] == ["cross.context"]
    assert contract.positions is not None
    assert not contract.batched


def without_output(model: onnx.ModelProto, name: str) -> None:
    outputs = [value for value in model.graph.output if value.name != name]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def rename_input(model: onnx.ModelProto, old: str, new: str) -> None:
    for value in model.graph.input:
        if value.name == old:
            value.name = new
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda model: without_output(model, "logits"), "lacks output 'logits'"),
        (lambda model: without_output(model, "present.1.v"), r"lacks output 'present\.1\.v'"),
        (lambda model: rename_input(model, "seqlens_k", "lengths"), "lacks input 'seqlens_k'"),
    ],
)
def test_what_a_graph_lacks_is_named(read: Read, decoder: Any, change: Any, told: str) -> None:
    model = decoder.graph()
    change(model)
    with pytest.raises(ImageError, match=f"'tiny' can't decode sequences: it {told}"):
        read(model)


def test_a_graph_that_decodes_nothing_is_told_apart(read: Read, tools: Any) -> None:
    build = tools.Builder()
    build.input("x", onnx.TensorProto.FLOAT, ["N"])
    build.node("Identity", ["x"], ["y"])
    build.output("y", onnx.TensorProto.FLOAT, ["N"])
    with pytest.raises(ImageError, match="lacks input 'input_ids'"):
        read(build.model())


@pytest.fixture
def stage(session: Any, memory: Any, decoder: Any) -> Iterator[tuple[KeyValues, Steps]]:
    opened = session(decoder.graph())
    contract = SequenceContract.of(opened, "tiny")
    kv = KeyValues(contract, ROWS, SLOTS, memory.arena, "test")
    yield kv, Steps(opened, contract, kv, ROWS, "tiny")
    kv.close()


def poison(kv: KeyValues) -> None:
    """Fills all slots with NaN, which would spoil whatever takes in one row of it."""
    nan = np.full(kv.slot_bytes // 4, np.nan, np.float32)
    for slot in range(SLOTS):
        for address in kv.addresses(slot):
            ctypes.memmove(address, nan.ctypes.data, kv.slot_bytes)


def test_rows_that_a_sequence_has_not_written_never_count(stage: Any, decoder: Any) -> None:
    kv, steps = stage
    poison(kv)
    ids = [5, 9, 1, 44, 7, 3]
    truth = decoder.logits(ids)
    binding = steps.alone(1, {})
    got = steps.append(binding, np.array(ids[:4]), 0, CancelToken())
    np.testing.assert_allclose(got, truth[3], atol=2e-4)
    # In a batch with sequences of other lengths, too.
    steps.append(steps.alone(0, {}), np.array([8, 8]), 0, CancelToken())
    got = steps.append_one_each(0, [(2, 2), (ids[4], 4), (30, 0)], CancelToken())
    np.testing.assert_allclose(got[0], decoder.logits([8, 8, 2])[-1], atol=2e-4)
    np.testing.assert_allclose(got[1], truth[4], atol=2e-4)
    np.testing.assert_allclose(got[2], decoder.logits([30])[-1], atol=2e-4)


def test_a_moved_sequence_goes_on_in_its_new_slot(stage: Any, decoder: Any) -> None:
    kv, steps = stage
    steps.append(steps.alone(2, {}), np.array([5, 9, 1]), 0, CancelToken())
    kv.move(2, 0, 3)
    got = steps.append_one_each(0, [(44, 3)], CancelToken())
    np.testing.assert_allclose(got[0], decoder.logits([5, 9, 1, 44])[-1], atol=2e-4)


def test_slots_that_do_not_fit_leave_the_arena_as_it_was(session: Any, memory: Any, decoder: Any) -> None:
    contract = SequenceContract.of(session(decoder.graph()), "tiny")
    before = memory.arena.count
    with pytest.raises(OutOfArena):
        KeyValues(contract, 4096, 100, memory.arena, "test")
    assert memory.arena.count == before
