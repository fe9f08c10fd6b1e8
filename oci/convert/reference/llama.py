"""A Llama forward pass over a whole sequence, from a GGUF file's exact weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hailmesh.oci.convert.gguf import Gguf
from hailmesh.oci.convert.llama import Hyperparameters
from hailmesh.oci.convert.quant import F32
from hailmesh.oci.convert.reference.functions import attention, join_heads, rms_norm, split_heads


def _rotate(x: F32, base: float) -> F32:
    """Rotary position embedding of [heads, S, head size], pairs side by side as GGUF stores them."""
    half = np.arange(0, x.shape[-1], 2) / x.shape[-1]
    angles = np.arange(x.shape[1])[:, None] / base**half
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def logits(model: Gguf, ids: Sequence[int]) -> F32:
    """Logits [S, V] after each token of `ids`."""
    shape = Hyperparameters.of(model)

    def weight(name: str) -> F32:
        return model.tensor(name + ".weight").float32()

    embedding = weight("token_embd")
    x = embedding[np.asarray(ids)]
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weight(block + "attn_norm"), shape.epsilon)
        query = _rotate(split_heads(h @ weight(block + "attn_q").T, shape.heads), shape.rope_base)
        keys = _rotate(split_heads(h @ weight(block + "attn_k").T, shape.kv_heads), shape.rope_base)
        values = split_heads(h @ weight(block + "attn_v").T, shape.kv_heads)
        attended = join_heads(attention(query, keys, values, causal=True))
        x = x + attended @ weight(block + "attn_output").T
        h = rms_norm(x, weight(block + "ffn_norm"), shape.epsilon)
        gate = h @ weight(block + "ffn_gate").T
        up = h @ weight(block + "ffn_up").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(block + "ffn_down").T
    final: F32 = rms_norm(x, weight("output_norm"), shape.epsilon) @ embedding.T
    return final
