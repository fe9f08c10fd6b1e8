"""Real clients, unmodified, against the real node and real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conformance import openai_checks, triton_checks

from hailmesh.mesh.selftest import word_error_rate

QUESTION = "What is the capital of France?"
BECKETT = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."


@pytest.fixture(scope="module")
def sdk(node):
    with openai_checks.client(node.url) as sdk:
        yield sdk


@pytest.fixture(scope="module")
def triton(node):
    server = triton_checks.client(node.url)
    yield server
    server.close()


def test_openai_streams_a_chat(sdk):
    assert "Paris" in openai_checks.chat_streams_what_it_answers_plainly(sdk, "llm", QUESTION)


def test_openai_bounds_and_stops_an_answer(sdk):
    openai_checks.max_tokens_bounds_the_answer(sdk, "llm", QUESTION)
    openai_checks.a_stop_word_ends_the_answer(sdk, "llm", QUESTION)


def test_openai_transcribes_a_file(sdk, assets: Path):
    text = openai_checks.a_recording_is_transcribed(sdk, "asr", assets / "beckett.wav")
    assert word_error_rate(BECKETT, text) == 0.0


def test_openai_lists_the_models_and_knows_no_others(sdk):
    openai_checks.the_models_are_listed(sdk, {"vision", "llm", "asr"})
    openai_checks.an_unknown_model_is_not_found(sdk)


def test_openai_gets_a_bad_request_for_what_is_not_there(sdk, assets: Path):
    openai_checks.a_bad_option_is_a_bad_request(sdk, "llm")
    openai_checks.a_format_with_timestamps_is_a_bad_request(sdk, "asr", assets / "beckett.wav")


def test_triton_infers_with_binary_tensors_what_the_graph_computes(triton):
    found = triton_checks.binary_and_json_tensors_give_the_same_answer(triton, "vision")
    name, array = triton_checks.example(triton, "vision")
    graph = Path(__file__).resolve().parents[2] / "build" / "units" / "vision" / "classify.onnx"
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    for output, expected in zip(
        ("probs", "embedding"), session.run(["probs", "embedding"], {name: array}), strict=True
    ):
        np.testing.assert_allclose(found[output], expected, rtol=1e-4, atol=1e-5)


def test_triton_describes_counts_and_refuses(triton):
    triton_checks.the_server_is_alive_and_describes_its_model(triton, "vision")
    triton_checks.the_request_id_comes_back(triton, "vision")
    triton_checks.a_wrong_tensor_is_refused_with_its_reason(triton, "vision")
    triton_checks.an_unknown_model_is_refused(triton)
    triton_checks.statistics_count(triton, "vision")


def test_triton_sends_compressed_requests(triton):
    triton_checks.a_compressed_request_gives_the_same_answer(triton, "vision")
