"""Whisper: CTranslate2 weights → an encoder graph and a decoder sequence graph.

The encoder takes `mel` [N, bands, F] f32 with any even number of frames up to 2 × its positions, and gives
for every decoder layer L the cross-attention's keys `cross.L.k` [N, heads, head size, F/2] (already
transposed) and values `cross.L.v` [N, heads, F/2, head size]. Its weights are float16 on disk, float32 in
memory.

The decoder follows the sequence contract (see llama.py), with `cross.L.k/v` as further, bound inputs. Its
products are symmetric 8-bit. Positions follow from `seqlens_k`, so no position input is needed.
"""

from __future__ import annotations

import numpy as np
import onnx

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.ct2 import Model
from hailmesh.oci.convert.graph import FLOAT, INT32, INT64, MICROSOFT, GraphBuilder, Shape
from hailmesh.oci.convert.quant import BLOCK, F32, symmetric_8bit

EPSILON = 1e-5
INT8_ACTIVATIONS = 4


class _Part:
    """What encoder and decoder have in common."""

    def __init__(self, model: Model, name: str) -> None:
        if model.spec != "WhisperSpec":
            raise ImageError(f"expected a CTranslate2 WhisperSpec, found {model.spec!r}")
        self.model = model
        self.graph = GraphBuilder(name)
        self.heads = int(model.float32("decoder/num_heads"))
        self.width = model.float32("encoder/layer_norm/gamma").size
        self.head_size = self.width // self.heads
        self.scale = self.head_size**-0.5

    def layers(self, side: str) -> int:
        count = 0
        while f"{side}/layer_{count}/ffn/linear_0/weight" in self.model.variables:
            count += 1
        return count

    def layer_norm(self, x: str, name: str) -> str:
        gamma, beta = (
            self.graph.constant(f"{name}/{part}", self.model.float32(f"{name}/{part}"))
            for part in ("gamma", "beta")
        )
        return self.graph.op("LayerNormalization", [x, gamma, beta], axis=-1, epsilon=EPSILON)

    def split_heads(self, x: str, order: list[int], name: str = "") -> str:
        """[N, S, width] → [N, S, heads, head size], then transposed."""
        apart = self.graph.op("Reshape", [x, self.graph.ints(0, 0, self.heads, self.head_size)])
        return self.graph.op("Transpose", [apart], name=name, perm=order)

    def parameters(self, name: str) -> tuple[F32, F32]:
        return self.model.float32(name + "/weight"), self.model.float32(name + "/bias")


class _Encoder(_Part):
    def linear(self, x: str, name: str, weight: F32, bias: F32) -> str:
        product = self.graph.op("MatMul", [x, self.graph.half(name + "/weight", weight.T)])
        return self.graph.op("Add", [product, self.graph.constant(name + "/bias", bias)])

    def convolution(self, x: str, name: str, stride: int) -> str:
        weight, bias = self.parameters(name)
        inputs = [x, self.graph.half(name + "/weight", weight), self.graph.constant(name + "/bias", bias)]
        y = self.graph.op("Conv", inputs, kernel_shape=[3], pads=[1, 1], strides=[stride])
        return self.graph.op("Gelu", [y])

    def layer(self, x: str, index: int) -> str:
        graph, name = self.graph, f"encoder/layer_{index}/"
        h = self.layer_norm(x, name + "self_attention/layer_norm")
        qkv = self.linear(h, name + "qkv", *self.parameters(name + "self_attention/linear_0"))
        parts = graph.ops("Split", [qkv], [name + part for part in "qkv"], axis=-1, num_outputs=3)
        attended = graph.op(
            "MultiHeadAttention", parts, domain=MICROSOFT, num_heads=self.heads, scale=self.scale
        )
        out = self.linear(attended, name + "out", *self.parameters(name + "self_attention/linear_1"))
        x = graph.op("Add", [x, out])
        h = self.layer_norm(x, name + "ffn/layer_norm")
        h = graph.op("Gelu", [self.linear(h, name + "up", *self.parameters(name + "ffn/linear_0"))])
        return graph.op("Add", [x, self.linear(h, name + "down", *self.parameters(name + "ffn/linear_1"))])

    def positions(self, x: str) -> str:
        """The first rows of the position table, as many as x has."""
        table = self.graph.half("positions", self.model.float32("encoder/position_encodings/encodings"))
        length = self.graph.op("Shape", [x], start=1, end=2)
        return self.graph.op("Slice", [table, self.graph.ints(0), length, self.graph.ints(0)])

    def build(self) -> onnx.ModelProto:
        graph = self.graph
        bands = self.model.float32("encoder/conv1/weight").shape[1]
        x = graph.input("mel", FLOAT, ["N", bands, "frames"])
        x = self.convolution(self.convolution(x, "encoder/conv1", 1), "encoder/conv2", 2)
        x = graph.op("Transpose", [x], perm=[0, 2, 1])
        x = graph.op("Add", [x, self.positions(x)])
        for index in range(self.layers("encoder")):
            x = self.layer(x, index)
        x = self.layer_norm(x, "encoder/layer_norm")
        for index in range(self.layers("decoder")):
            weight, bias = self.parameters(f"decoder/layer_{index}/attention/linear_1")
            keys = self.linear(x, f"cross.{index}.k", weight[: self.width], bias[: self.width])
            values = self.linear(x, f"cross.{index}.v", weight[self.width :], bias[self.width :])
            self.split_heads(keys, [0, 2, 3, 1], f"cross.{index}.k")
            self.split_heads(values, [0, 2, 1, 3], f"cross.{index}.v")
            graph.output(f"cross.{index}.k", FLOAT, ["N", self.heads, self.head_size, "A"])
            graph.output(f"cross.{index}.v", FLOAT, ["N", self.heads, "A", self.head_size])
        return graph.model()


class _Decoder(_Part):
    def linear(self, x: str, name: str, weight: F32, bias: F32) -> str:
        values, scales = symmetric_8bit(weight)
        inputs = [
            x,
            self.graph.constant(name + "/q", values),
            self.graph.constant(name + "/d", scales),
            "",
            "",
        ]
        return self.graph.op(
            "MatMulNBits", [*inputs, self.graph.constant(name + "/bias", bias)], domain=MICROSOFT,
            K=weight.shape[1], N=weight.shape[0], bits=8, block_size=BLOCK, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip

    def positions(self, ids: str, seqlens: str) -> str:
        """Rows of the position table [B, S, width]: a row's length after this step, less S, and on."""
        graph = self.graph
        one = graph.constant("one", np.array(1, np.int64))
        zero = graph.constant("zero", np.array(0, np.int64))
        count = graph.op("Squeeze", [graph.op("Shape", [ids], start=1, end=2)])
        end = graph.op("Add", [graph.op("Cast", [seqlens], to=INT64), one])
        first = graph.op("Unsqueeze", [graph.op("Sub", [end, count]), graph.ints(1)])
        index = graph.op("Add", [first, graph.op("Range", [zero, count, one])])
        table = graph.constant("positions", self.model.float32("decoder/position_encodings/encodings"))
        return graph.op("Gather", [table, index])

    def self_attention(self, x: str, index: int, lengths: list[str]) -> str:
        graph, name = self.graph, f"decoder/layer_{index}/self_attention/"
        h = self.layer_norm(x, name + "layer_norm")
        qkv = self.linear(h, name + "qkv", *self.parameters(name + "linear_0"))
        cache: Shape = ["B", self.heads, "room", self.head_size]
        past = [graph.input(f"past.{index}.{part}", FLOAT, cache) for part in "kv"]
        present = [f"present.{index}.{part}" for part in "kv"]
        attended, *_ = graph.ops(
            "GroupQueryAttention", [qkv, "", "", *past, *lengths], [name + "attended", *present],
            domain=MICROSOFT, num_heads=self.heads, kv_num_heads=self.heads, do_rotary=0, scale=self.scale,
        )  # fmt: skip
        for output in present:
            graph.output(output, FLOAT, cache)
        return graph.op("Add", [x, self.linear(attended, name + "out", *self.parameters(name + "linear_1"))])

    def cross_attention(self, x: str, index: int) -> str:
        graph, name = self.graph, f"decoder/layer_{index}/attention/"
        h = self.layer_norm(x, name + "layer_norm")
        weight, bias = self.parameters(name + "linear_0")
        query = self.split_heads(
            self.linear(h, name + "q", weight * self.scale, bias * self.scale), [0, 2, 1, 3]
        )
        keys = graph.input(f"cross.{index}.k", FLOAT, ["B", self.heads, self.head_size, "A"])
        values = graph.input(f"cross.{index}.v", FLOAT, ["B", self.heads, "A", self.head_size])
        shares = graph.op("Softmax", [graph.op("MatMul", [query, keys])], axis=-1)
        mixed = graph.op("Transpose", [graph.op("MatMul", [shares, values])], perm=[0, 2, 1, 3])
        joined = graph.op("Reshape", [mixed, graph.ints(0, 0, self.width)])
        return graph.op("Add", [x, self.linear(joined, name + "out", *self.parameters(name + "linear_2"))])

    def feed_forward(self, x: str, index: int) -> str:
        graph, name = self.graph, f"decoder/layer_{index}/ffn/"
        h = self.layer_norm(x, name + "layer_norm")
        h = graph.op("Gelu", [self.linear(h, name + "up", *self.parameters(name + "linear_0"))])
        return graph.op("Add", [x, self.linear(h, name + "down", *self.parameters(name + "linear_1"))])

    def build(self) -> onnx.ModelProto:
        graph = self.graph
        ids = graph.input("input_ids", INT64, ["B", "S"])
        lengths = [graph.input("seqlens_k", INT32, ["B"]), graph.input("total_len", INT32, [])]
        embedding = self.model.float32("decoder/embeddings/weight")
        vocabulary = len(embedding)
        values, scales = symmetric_8bit(embedding)
        table = graph.constant("embedding.q", values.reshape(vocabulary, self.width))
        table_scales = graph.constant("embedding.d", scales)
        x = graph.op(
            "GatherBlockQuantized", [table, ids, table_scales], domain=MICROSOFT, bits=8, block_size=BLOCK,
            gather_axis=0, quantize_axis=1,
        )  # fmt: skip
        x = graph.op("Add", [x, self.positions(ids, lengths[0])])
        for index in range(self.layers("decoder")):
            x = self.self_attention(x, index, lengths)
            x = self.cross_attention(x, index)
            x = self.feed_forward(x, index)
        last = graph.op("Slice", [x, graph.ints(-1), graph.ints(2**31 - 1), graph.ints(1)])
        head = graph.op("Reshape", [table, graph.ints(vocabulary, self.width // BLOCK, BLOCK)])
        graph.op(
            "MatMulNBits", [self.layer_norm(last, "decoder/layer_norm"), head, table_scales], name="logits",
            domain=MICROSOFT, K=self.width, N=vocabulary, bits=8, block_size=BLOCK,
            accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip
        graph.output("logits", FLOAT, ["B", 1, vocabulary])
        return graph.model()


def encoder(model: Model) -> onnx.ModelProto:
    """The encoder graph; ImageError if `model` is no Whisper."""
    return _Encoder(model, "whisper-encoder").build()


def decoder(model: Model) -> onnx.ModelProto:
    """The decoder sequence graph; ImageError if `model` is no Whisper."""
    return _Decoder(model, "whisper-decoder").build()
