"""EfficientNet-lite0: PyTorch weights → an ONNX graph with batch normalization folded into the convolutions.

Input `image` [N, 3, 224, 224] f32, RGB, (x − 127) / 128. Outputs `probs` [N, classes] and `embedding`
[N, 1280]. TensorFlow's "SAME" padding, which puts the odd pixel below and to the right.
Architecture: tensorflow/tpu, efficientnet/lite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.graph import FLOAT, GraphBuilder
from hailmesh.oci.convert.quant import F32, Array

SIZE = 224
EPSILON = 1e-3
RELU6_MAX = 6.0


@dataclass(frozen=True, slots=True)
class Stage:
    """`repeats` blocks with a depthwise kernel of `kernel`; the first has the stride."""

    repeats: int
    kernel: int
    stride: int


STAGES = (
    Stage(1, 3, 1), Stage(2, 3, 2), Stage(2, 5, 2), Stage(3, 3, 2), Stage(3, 5, 1), Stage(4, 5, 2),
    Stage(1, 3, 1),
)  # fmt: skip


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """(pixels before, pixels after, output size) along one axis."""
    out = -(-size // stride)
    total = max((out - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2, out


def folded(weights: Mapping[str, Array], conv: str, norm: str) -> tuple[F32, F32]:
    """Weight and bias of a convolution with the batch normalization behind it folded in."""
    scale = weights[norm + ".weight"] / np.sqrt(weights[norm + ".running_var"] + EPSILON)
    bias = weights[norm + ".bias"] - weights[norm + ".running_mean"] * scale
    weight = weights[conv + ".weight"] * scale[:, None, None, None]
    return weight.astype(np.float32), bias.astype(np.float32)


class _Classifier:
    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.graph = GraphBuilder("efficientnet-lite0")
        self.size = SIZE

    def conv(
        self,
        x: str,
        conv: str,
        norm: str,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        relu6: bool = True,
    ) -> str:
        weight, bias = folded(self.weights, conv, norm)
        before, after, self.size = same_padding(self.size, kernel, stride)
        y = self.graph.op(
            "Conv", [x, self.graph.half(conv + ".weight", weight), self.graph.half(conv + ".bias", bias)],
            kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[before, before, after, after],
            group=groups,
        )  # fmt: skip
        return self.relu6(y) if relu6 else y

    def relu6(self, x: str) -> str:
        low = self.graph.constant("relu6.low", np.array(0, np.float32))
        return self.graph.op(
            "Clip", [x, low, self.graph.constant("relu6.high", np.array(RELU6_MAX, np.float32))]
        )

    def block(self, x: str, index: int, kernel: int, stride: int, residual: bool) -> str:
        """An inverted bottleneck: expand, depthwise, project."""
        name = f"_blocks.{index}."
        y = x
        if name + "_expand_conv.weight" in self.weights:
            y = self.conv(y, name + "_expand_conv", name + "_bn0", 1)
        channels = len(self.weights[name + "_depthwise_conv.weight"])
        y = self.conv(y, name + "_depthwise_conv", name + "_bn1", kernel, stride=stride, groups=channels)
        y = self.conv(y, name + "_project_conv", name + "_bn2", 1, relu6=False)
        return self.graph.op("Add", [x, y]) if residual else y

    def build(self) -> onnx.ModelProto:
        graph = self.graph
        x = graph.input("image", FLOAT, ["N", 3, SIZE, SIZE])
        x = self.conv(x, "_conv_stem", "_bn0", 3, stride=2)
        index = 0
        for stage in STAGES:
            for repeat in range(stage.repeats):
                x = self.block(x, index, stage.kernel, 1 if repeat else stage.stride, residual=repeat > 0)
                index += 1
        x = self.conv(x, "_conv_head", "_bn1", 1)
        embedding = graph.op("Flatten", [graph.op("GlobalAveragePool", [x])], name="embedding")
        classes, width = self.weights["_fc.weight"].shape
        head = [
            graph.half("_fc.weight", self.weights["_fc.weight"]),
            graph.half("_fc.bias", self.weights["_fc.bias"]),
        ]
        graph.op("Softmax", [graph.op("Gemm", [embedding, *head], transB=1)], name="probs", axis=-1)
        graph.output("probs", FLOAT, ["N", classes])
        graph.output("embedding", FLOAT, ["N", width])
        return graph.model()


def classifier(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The graph; ImageError if `weights` are another network's."""
    try:
        return _Classifier(weights).build()
    except KeyError as error:
        raise ImageError(f"these are no EfficientNet-lite0 weights: {error} is missing") from error
