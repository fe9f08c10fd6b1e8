"""What is refused before onnxruntime sees it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hailmesh.hail.errors import Denied, ImageError
from hailmesh.kernels.vetting import vet

FLOATS = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
RESULT = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])


def graph_of(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "test", [FLOATS], [RESULT], list(weights))


def model_of(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    return helper.make_model(graph_of(*nodes, weights=weights))


def external() -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return tensor


SAME = helper.make_node("Identity", ["x"], ["y"])


def branching(inner: onnx.NodeProto) -> onnx.NodeProto:
    bodies = (helper.make_graph([node], "branch", [], [RESULT]) for node in (SAME, inner))
    return helper.make_node("If", ["c"], ["y"], then_branch=next(bodies), else_branch=next(bodies))


LOOP = helper.make_node("Loop", ["", "", "x"], ["y"], body=graph_of(SAME))


def test_the_domains_of_onnx_and_onnxruntime_pass(save: Any, decoder: Any) -> None:
    vet(save(decoder.graph()))
    vet(save(model_of(SAME)))


def test_a_file_is_read_through_its_descriptor_and_left_open(save: Any) -> None:
    with save(model_of(SAME)).open("rb") as file:
        vet(file.fileno())
        assert file.read(1)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (model_of(helper.make_node("Evil", ["x"], ["y"], domain="com.example")), r"com\.example\.Evil"),
        (model_of(branching(helper.make_node("Evil", ["x"], ["y"], domain="x"))), r"x\.Evil"),
        (model_of(LOOP), "Loop"),
        (model_of(branching(LOOP)), "Loop"),
        (model_of(helper.make_node("Scan", ["x"], ["y"], body=graph_of(SAME), num_scan_inputs=1)), "Scan"),
        (model_of(helper.make_node("EPContext", [], ["y"], domain="com.microsoft")), "EPContext"),
        (model_of(SAME, weights=(external(),)), "other files"),
        (model_of(helper.make_node("Constant", [], ["y"], value=external())), "other files"),
        (model_of(branching(helper.make_node("Constant", [], ["y"], value=external()))), "other files"),
    ],
)
def test_what_reaches_beyond_the_model_is_denied(save: Any, model: onnx.ModelProto, told: str) -> None:
    with pytest.raises(Denied, match=told):
        vet(save(model))


def test_a_function_s_operators_are_looked_at_too(save: Any) -> None:
    model = model_of(SAME)
    evil = helper.make_node("Evil", ["a"], ["b"], domain="com.example")
    opset = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("", "F", ["a"], ["b"], [evil], opset))
    with pytest.raises(Denied, match="Evil"):
        vet(save(model))


def test_loops_pass_where_they_are_allowed(save: Any) -> None:
    vet(save(model_of(branching(LOOP))), loops=True)


def test_sparse_weights_elsewhere_are_denied(save: Any) -> None:
    model = model_of(SAME)
    model.graph.sparse_initializer.add().values.CopyFrom(external())
    with pytest.raises(Denied, match="other files"):
        vet(save(model))


def test_deep_nesting_is_refused(save: Any) -> None:
    node = SAME
    for _ in range(20):
        node = branching(node)
    with pytest.raises(ImageError, match="nests"):
        vet(save(model_of(node)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x08",
        b"\xff" * 40,
        b"    ORTM" + b"\0" * 30,
        b"hello, world",
        b"\x3a\xff\xff\x7f",
    ],
)
def test_what_is_not_onnx_is_an_image_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(ImageError):
        vet(path)


def test_a_damaged_file_passes_or_is_refused_but_nothing_else(
    save: Any, decoder: Any, tmp_path: Path
) -> None:
    whole = save(decoder.graph()).read_bytes()[:4000]
    path, chance = tmp_path / "damaged", random.Random(3)
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged[: chance.randrange(1, len(damaged))])
        try:
            vet(path)
        except (ImageError, Denied) as error:
            assert "\n" not in str(error)
