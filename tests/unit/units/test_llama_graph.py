"""The language converter on a small random model: no download, every path of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert import gguf, llama
from hailmesh.oci.convert.reference import llama as reference

LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN, VOCABULARY, CONTEXT = 2, 4, 2, 128, 160, 96, 64

METADATA = {
    "general.architecture": (8, "llama"),
    "llama.block_count": (4, LAYERS),
    "llama.attention.head_count": (4, HEADS),
    "llama.attention.head_count_kv": (4, KV_HEADS),
    "llama.embedding_length": (4, WIDTH),
    "llama.vocab_size": (4, VOCABULARY),
    "llama.context_length": (4, 8192),
    "llama.attention.layer_norm_rms_epsilon": (6, 1e-5),
    "llama.rope.freq_base": (6, 10_000.0),
}


def q4_1(rng: np.random.Generator, rows: int, width: int) -> Any:
    """Random Q4_1 weights whose minima are no whole multiples of their scales."""
    blocks = (rows, width // 32)
    scale = (rng.uniform(0.5, 1.5, blocks) / 15 / np.sqrt(width) * 4).astype(np.float16)
    low = (-scale * rng.uniform(3, 12, blocks)).astype(np.float16)
    return ("Q4_1", (rows, width), (rng.integers(0, 16, (*blocks, 32), np.uint8), scale, low))


def random_tensors() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    kv_width = WIDTH // HEADS * KV_HEADS
    d = rng.uniform(0.001, 0.004, (VOCABULARY, WIDTH // 32)).astype(np.float16)
    q = rng.integers(-127, 128, (VOCABULARY, WIDTH // 32, 32)).astype(np.int8)
    tensors = {"token_embd.weight": ("Q8_0", (VOCABULARY, WIDTH), (q, d))}

    def norm() -> Any:
        return ("F32", (WIDTH,), rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))

    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (kv_width, WIDTH), "attn_v": (kv_width, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }  # fmt: skip
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = norm()
        for name, (rows, width) in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = q4_1(rng, rows, width)
    return {**tensors, "output_norm.weight": norm()}


@pytest.fixture
def model(write_gguf: Any) -> gguf.Gguf:
    return gguf.load(write_gguf(METADATA, random_tensors()))


@pytest.fixture
def graph(model: gguf.Gguf, tmp_path: Path) -> Path:
    path = tmp_path / "decoder.onnx"
    path.write_bytes(llama.decoder(model, CONTEXT).SerializeToString(deterministic=True))
    return path


IDS = [int(token) for token in np.random.default_rng(3).integers(0, VOCABULARY, 24)]


def test_token_by_token_it_follows_the_exact_forward_pass(
    model: gguf.Gguf, graph: Path, sequence: Any, divergence: Any
) -> None:
    truth = reference.logits(model, IDS)
    driven = sequence(graph, room=CONTEXT)
    found = np.concatenate([driven.step([token]) for token in IDS])
    assert divergence(truth, found).mean() <= 0.002
    assert np.corrcoef(truth.ravel(), found.ravel())[0, 1] >= 0.999


def test_rounded_minima_alone_would_be_seen(
    model: gguf.Gguf, graph: Path, divergence: Any, sequence: Any
) -> None:
    """Without the residual columns the divergence is many times larger."""
    proto = onnx.load(graph)
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("block_sums."):
            zeros = onnx.numpy_helper.from_array(np.zeros(tensor.dims, np.float32), tensor.name)
            tensor.CopyFrom(zeros)
    crippled = graph.with_name("crippled.onnx")
    onnx.save(proto, crippled)
    truth = reference.logits(model, IDS)
    losses = []
    for path in (graph, crippled):
        driven = sequence(path, room=CONTEXT)
        losses.append(divergence(truth, np.concatenate([driven.step([token]) for token in IDS])).mean())
    assert losses[1] > 10 * losses[0]


def test_chunks_equal_the_whole_and_only_the_last_position_comes_out(graph: Path, sequence: Any) -> None:
    whole = sequence(graph, room=CONTEXT).step(IDS)
    parts = sequence(graph, room=CONTEXT)
    parts.step(IDS[:7])
    parts.step(IDS[7:8])
    np.testing.assert_allclose(parts.step(IDS[8:]), whole, atol=0.05)
    assert whole.shape == (1, VOCABULARY)


def test_rows_of_a_batch_keep_their_own_lengths(
    model: gguf.Gguf, graph: Path, sequence: Any, divergence: Any
) -> None:
    truth = reference.logits(model, IDS)
    driven = sequence(graph, room=CONTEXT, rows=2)
    for at in range(16):
        driven.lengths = np.array([at, max(at - 6, 0)], np.int32)
        found = driven.step([IDS[at], IDS[max(at - 6, 0)]])
    assert divergence(truth[[15, 9]], found).max() <= 0.01


def test_the_same_weights_give_the_same_bytes(model: gguf.Gguf, graph: Path) -> None:
    again = llama.decoder(model, CONTEXT).SerializeToString(deterministic=True)
    assert again == graph.read_bytes()


def test_inputs_and_outputs_follow_the_sequence_contract(graph: Path) -> None:
    proto = onnx.load(graph).graph
    names = [value.name for value in proto.input]
    assert names[:3] == ["input_ids", "seqlens_k", "total_len"]
    assert names[3:] == ["past.0.k", "past.0.v", "past.1.k", "past.1.v"]
    dims = [dim.dim_param or dim.dim_value for dim in proto.input[3].type.tensor_type.shape.dim]
    assert dims == ["B", KV_HEADS, "room", WIDTH // HEADS]
    assert [value.name for value in proto.output] == [
        "present.0.k", "present.0.v", "present.1.k", "present.1.v", "logits",
    ]  # fmt: skip


def test_another_architecture_is_refused(write_gguf: Any) -> None:
    other = gguf.load(write_gguf({**METADATA, "general.architecture": (8, "gemma")}, random_tensors()))
    with pytest.raises(ImageError, match="expected a llama model, found 'gemma'"):
        llama.decoder(other, CONTEXT)


def test_an_untied_head_is_refused(write_gguf: Any) -> None:
    tensors = random_tensors()
    tensors["output.weight"] = tensors["token_embd.weight"]
    with pytest.raises(ImageError, match=r"the file has output\.weight"):
        llama.decoder(gguf.load(write_gguf(METADATA, tensors)), CONTEXT)
