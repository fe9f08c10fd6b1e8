"""Llama-family language models: GGUF (Q4_1 weights, Q8_0 embedding) → an ONNX sequence graph.

The graph follows the sequence contract of the kernels: `input_ids` [B, S] i64, `seqlens_k` [B] i32 (a row's
length after this step, less one), `total_len` i32 (the longest row's length after this step), `past.L.k/v`
and `present.L.k/v` [B, KV heads, room, head size] f32, bound to the same memory; out comes `logits` [B, 1, V]
of the last position.

Q4_1 is w = d·q + m with a real-valued minimum m; MatMulNBits knows integer zero points z: w = d·(q − z).
Rounding −m/d alone costs a mean KL divergence of 0.4. So the residual r = m + z·d, one value a block, goes
along as extra weight columns: W·x = Σ d·(q − z)·x + Σ_b r_b·(Σ_{i in b} x_i). The extra columns are 4-bit
blocks too, and are fed with the block sums of x, which one small product per activation computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.gguf import Gguf
from hailmesh.oci.convert.graph import FLOAT, INT32, INT64, MICROSOFT, GraphBuilder, Shape
from hailmesh.oci.convert.quant import BLOCK, F32, U8, asymmetric_4bit, blocks_of, pack_nibbles

INT8_ACTIVATIONS = 4
"""MatMulNBits accuracy_level: activations are quantized to int8 per block."""

Weights = tuple[U8, F32, F32]


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The numbers that shape the graph."""

    layers: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    context: int
    epsilon: float
    rope_base: float

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @classmethod
    def of(cls, model: Gguf) -> Hyperparameters:
        """From the metadata; ImageError if the file holds another architecture."""
        if model["general.architecture"] != "llama":
            raise ImageError(f"expected a llama model, found {model['general.architecture']!r}")
        return cls(
            layers=model["llama.block_count"],
            heads=model["llama.attention.head_count"],
            kv_heads=model["llama.attention.head_count_kv"],
            width=model["llama.embedding_length"],
            vocabulary=model["llama.vocab_size"],
            context=model["llama.context_length"],
            epsilon=model["llama.attention.layer_norm_rms_epsilon"],
            rope_base=model["llama.rope.freq_base"],
        )


def _stack(*parts: Weights) -> Weights:
    q, d, m = zip(*parts, strict=True)
    return np.concatenate(q), np.concatenate(d), np.concatenate(m)


class _Decoder:
    def __init__(self, model: Gguf, context: int) -> None:
        self.gguf = model
        self.shape = Hyperparameters.of(model)
        self.context = context
        self.graph = GraphBuilder("llama")
        self._with_sums: dict[str, str] = {}

    def weights(self, name: str) -> Weights:
        return self.gguf.tensor(name + ".weight").q4_1()

    def rotary(self, name: str, heads: int) -> Weights:
        """Q or K rows, put back from GGUF's order (pairs side by side) to halves: first all x, then all y."""
        q, d, m = self.weights(name)
        order = np.arange(len(q)).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return q[order], d[order], m[order]

    def norm_weight(self, name: str) -> str:
        return self.graph.constant(name + ".weight", self.gguf.tensor(name + ".weight").float32())

    def with_block_sums(self, x: str, width: int) -> str:
        """x, followed by the sum of each of its blocks (padded to whole blocks with zeros)."""
        if x not in self._with_sums:
            sums = np.zeros((width, blocks_of(blocks_of(width)) * BLOCK), np.float32)
            sums[np.arange(width), np.arange(width) // BLOCK] = 1
            summed = self.graph.op("MatMul", [x, self.graph.constant(f"block_sums.{width}", sums)])
            self._with_sums[x] = self.graph.op("Concat", [x, summed], axis=-1)
        return self._with_sums[x]

    def linear(self, x: str, weights: Weights, name: str) -> str:
        """x [B, S, K] times Q4_1 weights [N, K], to within the 4-bit coding of the residuals."""
        q, d, m = weights
        rows, blocks, _ = q.shape
        zeros = np.clip(np.round(-m / np.where(d == 0, 1, d)), 0, 15).astype(np.uint8)
        extra_q, extra_d, extra_zeros = asymmetric_4bit(m + zeros * d)
        packed = pack_nibbles(np.concatenate([q, extra_q], 1))
        inputs = [
            self.with_block_sums(x, blocks * BLOCK),
            self.graph.constant(name + ".q", packed),
            self.graph.constant(name + ".d", np.concatenate([d, extra_d], 1)),
            self.graph.constant(name + ".z", pack_nibbles(np.concatenate([zeros, extra_zeros], 1))),
        ]
        return self.graph.op(
            "MatMulNBits", inputs, domain=MICROSOFT, K=(blocks + extra_q.shape[1]) * BLOCK, N=rows, bits=4,
            block_size=BLOCK, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip

    def rotation(self) -> tuple[str, str]:
        """cos and sin [context, head size / 2] of the rotary position embedding."""
        half = np.arange(0, self.shape.head_size, 2) / self.shape.head_size
        angles = np.arange(self.context)[:, None] / self.shape.rope_base**half
        cos = self.graph.constant("rope.cos", np.cos(angles).astype(np.float32))
        return cos, self.graph.constant("rope.sin", np.sin(angles).astype(np.float32))

    def attention(self, h: str, layer: int, lengths: list[str]) -> str:
        """Causal self-attention over the bound keys and values of `layer`."""
        shape, graph, block = self.shape, self.graph, f"blk.{layer}."
        qkv = _stack(
            self.rotary(block + "attn_q", shape.heads),
            self.rotary(block + "attn_k", shape.kv_heads),
            self.weights(block + "attn_v"),
        )
        cache: Shape = ["B", shape.kv_heads, "room", shape.head_size]
        past = [graph.input(f"past.{layer}.{part}", FLOAT, cache) for part in "kv"]
        present = [f"present.{layer}.{part}" for part in "kv"]
        attended, *_ = graph.ops(
            "GroupQueryAttention",
            [self.linear(h, qkv, block + "qkv"), "", "", *past, *lengths, *self.rotation()],
            [block + "attended", *present],
            domain=MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1,
            rotary_interleaved=0, scale=shape.head_size**-0.5,
        )  # fmt: skip
        for name in present:
            graph.output(name, FLOAT, cache)
        return self.linear(attended, self.weights(block + "attn_output"), block + "attn_output")

    def feed_forward(self, h: str, layer: int) -> str:
        """SiLU(gate) · up, then down; gate and up are one product."""
        graph, block = self.graph, f"blk.{layer}."
        gate_up = _stack(self.weights(block + "ffn_gate"), self.weights(block + "ffn_up"))
        both = self.linear(h, gate_up, block + "ffn_gate_up")
        gate, up = graph.ops("Split", [both], [block + "gate", block + "up"], axis=-1, num_outputs=2)
        silu = graph.op("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0)
        return self.linear(graph.op("Mul", [silu, up]), self.weights(block + "ffn_down"), block + "ffn_down")

    def add_and_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """(RMS norm of x + delta, x + delta)"""
        outputs = [weight + ":normed", "", "", weight + ":sum"]
        normed, _, _, total = self.graph.ops(
            "SkipSimplifiedLayerNormalization", [x, delta, self.norm_weight(weight)], outputs,
            domain=MICROSOFT, epsilon=self.shape.epsilon,
        )  # fmt: skip
        return normed, total

    def norm(self, x: str, weight: str) -> str:
        return self.graph.op(
            "SimplifiedLayerNormalization", [x, self.norm_weight(weight)], axis=-1, epsilon=self.shape.epsilon
        )

    def build(self) -> onnx.ModelProto:
        graph, shape = self.graph, self.shape
        ids = graph.input("input_ids", INT64, ["B", "S"])
        lengths = [graph.input("seqlens_k", INT32, ["B"]), graph.input("total_len", INT32, [])]
        if "output.weight" in self.gguf.tensors:
            raise ImageError("this conversion ties the head to the embedding, but the file has output.weight")
        values, scales = self.gguf.tensor("token_embd.weight").q8_0()
        table = graph.constant("embedding.q", values.reshape(shape.vocabulary, shape.width))
        table_scales = graph.constant("embedding.d", scales)
        x = graph.op(
            "GatherBlockQuantized", [table, ids, table_scales], domain=MICROSOFT, bits=8, block_size=BLOCK,
            gather_axis=0, quantize_axis=1,
        )  # fmt: skip
        h = self.norm(x, "blk.0.attn_norm")
        for layer in range(shape.layers):
            h, x = self.add_and_norm(x, self.attention(h, layer, lengths), f"blk.{layer}.ffn_norm")
            delta = self.feed_forward(h, layer)
            if layer + 1 < shape.layers:
                h, x = self.add_and_norm(x, delta, f"blk.{layer + 1}.attn_norm")
            else:
                x = graph.op("Add", [x, delta])
        last = graph.op("Slice", [x, graph.ints(-1), graph.ints(2**31 - 1), graph.ints(1)])
        head = graph.op("Reshape", [table, graph.ints(shape.vocabulary, shape.width // BLOCK, BLOCK)])
        graph.op(
            "MatMulNBits", [self.norm(last, "output_norm"), head, table_scales], name="logits",
            domain=MICROSOFT, K=shape.width, N=shape.vocabulary, bits=8, block_size=BLOCK,
            accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip
        graph.output("logits", FLOAT, ["B", 1, shape.vocabulary])
        return graph.model()


def decoder(model: Gguf, context: int) -> onnx.ModelProto:
    """The sequence graph for up to `context` positions, with tied input and output embedding. ImageError
    names a tensor that is missing or not in the expected format."""
    return _Decoder(model, context).build()
