"""What tritonclient.http, unmodified, must find at a node: checks for any unit with one tensor input."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype


def client(url: str) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(url.removeprefix("http://"))


def example(server: triton.InferenceServerClient, model: str) -> tuple[str, np.ndarray]:
    """The name of the model's input, and a tensor that fits it; free dimensions are 1."""
    (spec,) = server.get_model_metadata(model)["inputs"]
    shape = [abs(extent) for extent in spec["shape"]]
    values = np.linspace(-1, 1, int(np.prod(shape)))
    return spec["name"], values.reshape(shape).astype(triton_to_np_dtype(spec["datatype"]))


def tensor(name: str, array: np.ndarray, *, binary: bool = True) -> triton.InferInput:
    entry = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    entry.set_data_from_numpy(array, binary_data=binary)
    return entry


def the_server_is_alive_and_describes_its_model(server: triton.InferenceServerClient, model: str) -> None:
    assert server.is_server_live()
    assert server.is_server_ready()
    assert server.is_model_ready(model)
    assert "binary_tensor_data" in server.get_server_metadata()["extensions"]
    metadata = server.get_model_metadata(model)
    assert metadata["name"] == model
    config = server.get_model_config(model)
    assert [entry["name"] for entry in config["input"]] == [entry["name"] for entry in metadata["inputs"]]
    assert model in {entry["name"] for entry in server.get_model_repository_index()}


def binary_and_json_tensors_give_the_same_answer(
    server: triton.InferenceServerClient, model: str
) -> dict[str, np.ndarray]:
    """Every output, through all four combinations of binary and JSON; returns them."""
    name, array = example(server, model)
    outputs = [entry["name"] for entry in server.get_model_metadata(model)["outputs"]]
    reference = server.infer(model, [tensor(name, array)])
    found = {output: reference.as_numpy(output) for output in outputs}
    for binary_in in (True, False):
        for binary_out in (True, False):
            wanted = [triton.InferRequestedOutput(output, binary_data=binary_out) for output in outputs]
            answer = server.infer(model, [tensor(name, array, binary=binary_in)], outputs=wanted)
            for output in outputs:
                np.testing.assert_allclose(answer.as_numpy(output), found[output], rtol=1e-4, atol=1e-5)
    return found


def a_compressed_request_gives_the_same_answer(server: triton.InferenceServerClient, model: str) -> None:
    name, array = example(server, model)
    output = server.get_model_metadata(model)["outputs"][0]["name"]
    plain = server.infer(model, [tensor(name, array)]).as_numpy(output)
    for algorithm in ("gzip", "deflate"):
        packed = server.infer(model, [tensor(name, array)], request_compression_algorithm=algorithm)
        np.testing.assert_allclose(packed.as_numpy(output), plain, rtol=1e-4, atol=1e-5)


def the_request_id_comes_back(server: triton.InferenceServerClient, model: str) -> None:
    name, array = example(server, model)
    assert server.infer(model, [tensor(name, array)], request_id="q-7").get_response()["id"] == "q-7"


def a_wrong_tensor_is_refused_with_its_reason(server: triton.InferenceServerClient, model: str) -> None:
    name, array = example(server, model)
    wrong = {
        "datatype": tensor(name, array.astype(np.float64)),
        "shape": tensor(name, array[..., :-1].copy()),
        "name": tensor("nobody", array),
    }
    for entry in wrong.values():
        with pytest.raises(InferenceServerException) as refusal:
            server.infer(model, [entry])
        assert refusal.value.status() == "400"
        assert name in refusal.value.message()
    assert server.infer(model, [tensor(name, array)]) is not None


def an_unknown_model_is_refused(server: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="nobody"):
        server.infer("nobody", [tensor("x", np.zeros((1,), np.float32))])
    assert not server.is_model_ready("nobody")


def statistics_count(server: triton.InferenceServerClient, model: str) -> None:
    """Each request adds one."""
    name, array = example(server, model)
    before = server.get_inference_statistics(model)["model_stats"][0]["inference_count"]
    server.infer(model, [tensor(name, array)])
    assert server.get_inference_statistics(model)["model_stats"][0]["inference_count"] == before + 1
