import numpy as np
import pytest
from conformance import triton_checks as checks


@pytest.fixture(scope="module")
def server(served):
    with checks.client(served.url) as server:
        yield server


def test_the_server_is_alive_and_describes_its_model(server):
    checks.the_server_is_alive_and_describes_its_model(server, "vision")


def test_binary_and_json_tensors_give_the_same_answer(server):
    found = checks.binary_and_json_tensors_give_the_same_answer(server, "vision")
    _, image = checks.example(server, "vision")
    expected = [[image.sum(), image.min(), image.max(), image.size]]
    np.testing.assert_allclose(found["scores"], expected, atol=1e-4)


def test_a_compressed_request_gives_the_same_answer(server):
    checks.a_compressed_request_gives_the_same_answer(server, "vision")


def test_the_request_id_comes_back(server):
    checks.the_request_id_comes_back(server, "vision")


def test_a_wrong_tensor_is_refused_with_its_reason(server):
    checks.a_wrong_tensor_is_refused_with_its_reason(server, "vision")


def test_an_unknown_model_is_refused(server):
    checks.an_unknown_model_is_refused(server)


def test_statistics_count(server):
    checks.statistics_count(server, "vision")


def test_bytes_in_and_out_for_a_unit_without_tensors(server):
    prompt = np.array([b"one two"], dtype=np.object_)
    answer = server.infer("llm", [checks.tensor("text", prompt)])
    assert b'"one two"' in answer.as_numpy("reply")[0]


def test_a_generated_raw_body_is_parsed_back(server):
    name, image = checks.example(server, "vision")
    body, header_length = server.generate_request_body([checks.tensor(name, image)])
    assert header_length is not None
    assert len(body) == header_length + image.nbytes
