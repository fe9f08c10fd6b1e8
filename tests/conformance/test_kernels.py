"""Every named kernel that is found: what runs agrees with its reference, within what its spec promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, UsageError
from hailmesh.kernels import registry
from hailmesh.kernels.spec import Example

EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{example.name}")
    for name in registry.names()
    for example in registry.kernel(name).spec.examples()
]


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
    with Arena.create(128 << 20) as arena:
        memory = Memory(arena)
        yield memory
        for lease in memory.leases:
            lease.release()


def run(
    memory: Memory, name: str, example: Example, outputs: list[Buffer | None] | None = None
) -> list[Buffer | None]:
    inputs = [memory.holding(array) for array in example.inputs]
    count = 1 if outputs is None else len(outputs)
    places = outputs or [None] * count
    return registry.kernel(name).run(
        example.args, inputs, places, memory.allocate, [True] * count, CancelToken(), 0
    )


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_the_cpu_version_agrees_with_the_reference(memory: Memory, name: str, example: Example) -> None:
    spec = registry.kernel(name).spec
    truths = registry.reference(name)(spec.check(example.args), example.inputs)
    for got, truth in zip(run(memory, name, example), truths, strict=True):
        assert got is not None
        assert got.shape == truth.shape
        assert spec.tolerance[got.dtype.name].excess(got.numpy(), truth) <= 0


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_a_given_output_is_filled_in_place_whatever_it_held(
    memory: Memory, name: str, example: Example
) -> None:
    (fresh,) = run(memory, name, example)
    assert fresh is not None
    given = memory.allocate(fresh.dtype, fresh.shape)
    given.numpy()[...] = 77
    (filled,) = run(memory, name, example, [given])
    assert filled is given
    np.testing.assert_array_equal(given.numpy(), fresh.numpy())


@pytest.mark.parametrize("name", registry.names())
def test_inputs_are_left_as_they_were(memory: Memory, name: str) -> None:
    kernel = registry.kernel(name)
    example = next(kernel.spec.examples())
    inputs = [memory.holding(array) for array in example.inputs]
    kernel.run(example.args, inputs, [None], memory.allocate, [True], CancelToken(), 0)
    for buffer, array in zip(inputs, example.inputs, strict=True):
        np.testing.assert_array_equal(buffer.numpy(), array)


@pytest.mark.parametrize("name", registry.names())
def test_an_unknown_argument_is_refused_by_name(memory: Memory, name: str) -> None:
    example = next(registry.kernel(name).spec.examples())
    strange = Example(example.name, {**example.args, "colour": 1}, example.inputs)
    with pytest.raises(UsageError, match="colour"):
        run(memory, name, strange)


@pytest.mark.parametrize("name", registry.names())
def test_an_input_of_another_dtype_is_refused_by_name(memory: Memory, name: str) -> None:
    spec = registry.kernel(name).spec
    example = next(spec.examples())
    wrong = Example(example.name, example.args, tuple(array.astype(np.int64) for array in example.inputs))
    with pytest.raises(UsageError, match=spec.inputs[0].name):
        run(memory, name, wrong)


@pytest.mark.parametrize("name", registry.names())
def test_nothing_runs_for_a_cancelled_request(memory: Memory, name: str) -> None:
    kernel = registry.kernel(name)
    example = next(kernel.spec.examples())
    token = CancelToken()
    token.cancel()
    inputs = [memory.holding(array) for array in example.inputs]
    with pytest.raises(Cancelled):
        kernel.run(example.args, inputs, [None], memory.allocate, [True], token, 0)
