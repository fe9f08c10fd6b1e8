"""Quantized blocks as onnxruntime's own operators read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from hailmesh.oci.convert.graph import FLOAT, INT64, MICROSOFT, GraphBuilder
from hailmesh.oci.convert.quant import BLOCK, asymmetric_4bit, blocks_of, pack_nibbles, symmetric_8bit

ROWS, WIDTH = 6, 96


@pytest.fixture
def weights() -> Any:
    return np.random.default_rng(9).standard_normal((ROWS, WIDTH)).astype(np.float32)


def run(graph: GraphBuilder, feeds: dict[str, Any]) -> Any:
    session = ort.InferenceSession(graph.model().SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def product(weights: Any, bits: int, operands: list[Any]) -> Any:
    """The weights as MatMulNBits sees them: their product with the unit matrix."""
    graph = GraphBuilder("product")
    x = graph.input("x", FLOAT, ["M", WIDTH])
    names = [graph.constant(f"w{i}", operand) for i, operand in enumerate(operands)]
    graph.op(
        "MatMulNBits", [x, *names], name="y", domain=MICROSOFT, K=WIDTH, N=ROWS, bits=bits, block_size=BLOCK
    )  # fmt: skip
    graph.output("y", FLOAT, ["M", ROWS])
    return run(graph, {"x": np.eye(WIDTH, dtype=np.float32)}).T


def test_4_bit_blocks_are_what_the_operator_multiplies_by(weights: Any) -> None:
    values, scales, zeros = asymmetric_4bit(weights)
    assert values.max() <= 15
    expected = ((values.astype(np.float32) - zeros[..., None]) * scales[..., None]).reshape(ROWS, WIDTH)
    found = product(weights, 4, [pack_nibbles(values), scales, pack_nibbles(zeros)])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found - weights).max() <= scales.max() / 2 + 1e-6


def test_8_bit_blocks_are_what_the_operators_read(weights: Any) -> None:
    values, scales = symmetric_8bit(weights)
    expected = ((values.astype(np.float32) - 128) * scales[..., None]).reshape(ROWS, WIDTH)
    np.testing.assert_allclose(product(weights, 8, [values, scales]), expected, atol=1e-5)
    assert np.abs(expected - weights).max() <= scales.max() / 2 + 1e-6
    graph = GraphBuilder("rows")
    ids = graph.input("ids", INT64, ["S"])
    table = [graph.constant("table", values.reshape(ROWS, WIDTH)), ids, graph.constant("scales", scales)]
    graph.op(
        "GatherBlockQuantized", table, name="y", domain=MICROSOFT, bits=8, block_size=BLOCK, gather_axis=0,
        quantize_axis=1,
    )  # fmt: skip
    graph.output("y", FLOAT, ["S", WIDTH])
    np.testing.assert_allclose(run(graph, {"ids": np.array([4, 0])}), expected[[4, 0]], atol=1e-6)


def test_blocks_that_are_zero_or_one_sided_stay_exact_at_zero() -> None:
    weights = np.zeros((2, 2 * BLOCK), np.float32)
    weights[1, :BLOCK] = np.linspace(1, 2, BLOCK)
    weights[1, 3] = 0
    values, scales, zeros = asymmetric_4bit(weights)
    restored = (values.astype(np.float32) - zeros[..., None]) * scales[..., None]
    assert restored[0].max() == restored[0].min() == restored[1, 0, 3] == restored[1, 1].max() == 0


def test_a_width_of_no_whole_blocks_is_padded_with_zeros() -> None:
    values, scales, zeros = asymmetric_4bit(np.ones((2, 40), np.float32))
    assert values.shape == (2, blocks_of(40), BLOCK) == (2, 2, 32)
    restored = (values.astype(np.float32) - zeros[..., None]) * scales[..., None]
    np.testing.assert_allclose(restored.reshape(2, -1)[:, :40], 1)
    assert (restored.reshape(2, -1)[:, 40:] == 0).all()


def test_nibbles_pack_the_even_value_low_and_pad_odd_counts() -> None:
    np.testing.assert_array_equal(pack_nibbles(np.array([[1, 2, 3]], np.uint8)), [[0x21, 0x03]])


def test_one_name_holds_one_constant() -> None:
    graph = GraphBuilder("twice")
    graph.constant("w", np.zeros(3))
    graph.constant("w", np.zeros(3))
    with pytest.raises(ValueError, match="two different values"):
        graph.constant("w", np.ones(3))
