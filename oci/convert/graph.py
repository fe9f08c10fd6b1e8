"""A small ONNX graph builder: nodes by call, constants by name, nothing inferred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hailmesh.oci.convert.quant import Array

OPSET = 21
IR_VERSION = 10
MICROSOFT = "com.microsoft"

FLOAT = TensorProto.FLOAT
INT32 = TensorProto.INT32
INT64 = TensorProto.INT64

Shape = Sequence[int | str]


class GraphBuilder:
    """Collects nodes and initializers; `model()` makes the ONNX model.

    Values are known by name. The same calls give the same bytes, so a converted file has one digest.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, Array] = {}

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        """Declares an input; a dimension given as a string is free."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name: str, dtype: int, shape: Shape) -> None:
        """Declares the value called `name` as an output."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))

    def constant(self, name: str, value: Array) -> str:
        """An initializer. A name means one value: giving it another is an error."""
        known = self._constants.setdefault(name, np.asarray(value, order="C"))
        if known is not value and not np.array_equal(known, value):
            raise ValueError(f"constant {name} of {self.name} was given two different values")
        return name

    def ints(self, *values: int) -> str:
        """A 1-D int64 constant, such as a shape or axes."""
        return self.constant("i64:" + ",".join(map(str, values)), np.array(values, np.int64))

    def half(self, name: str, value: Array) -> str:
        """A float32 value that is stored as float16; onnxruntime folds the cast when it loads."""
        stored = self.constant(name + ".f16", value.astype(np.float16))
        return self.op("Cast", [stored], to=FLOAT)

    def op(
        self, kind: str, inputs: Sequence[str], *, name: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """One node with one output, which is called `name` if given."""
        return self.ops(kind, inputs, [name or f"{kind}:{len(self._nodes)}"], domain=domain, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Any
    ) -> Sequence[str]:
        """One node with the named outputs; an empty name is an output that isn't wanted."""
        node = helper.make_node(
            kind, list(inputs), list(outputs), name=f"{kind}_{len(self._nodes)}", domain=domain, **attributes
        )
        self._nodes.append(node)
        return outputs

    def model(self) -> onnx.ModelProto:
        """The finished model, checked to be well-formed as far as its operators are ONNX's own."""
        weights = [numpy_helper.from_array(value, name) for name, value in self._constants.items()]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="hailmesh")
        model.ir_version = IR_VERSION
        return model
