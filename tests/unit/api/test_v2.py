import gzip
import json
import zlib

import numpy as np
import pytest
from conformance.memory_node import image_tensor

from hailmesh.hail.errors import Overloaded

pytestmark = pytest.mark.anyio

IMAGE = image_tensor()
WANTED = [float(IMAGE.sum()), 0.0, 191.0, 192.0]


def binary(*, data=None, header=None, outputs=None, **parameters):
    """Body and headers of a request with one binary tensor."""
    data = IMAGE.tobytes() if data is None else data
    tensor = {
        "name": "image",
        "datatype": "FP32",
        "shape": [1, 3, 8, 8],
        "parameters": {"binary_data_size": len(data)},
        **(header or {}),
    }
    head = {"inputs": [tensor], "parameters": {"binary_data_output": True, **parameters}}
    if outputs is not None:
        head["outputs"] = outputs
    text = json.dumps(head).encode()
    return {"content": text + data, "headers": {"Inference-Header-Content-Length": str(len(text))}}


def in_json(**change):
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": IMAGE.ravel().tolist()}
    return {"json": {"inputs": [{**tensor, **change}]}}


async def infer(client, request, model="vision"):
    return await client.post(f"/v2/models/{model}/infer", **request)


async def test_tensors_in_json(client):
    answer = await infer(client, {"json": {"id": "q1", **in_json()["json"]}})
    assert answer.json() == {
        "model_name": "vision",
        "model_version": "1.0.0",
        "id": "q1",
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 4], "data": WANTED}],
    }


async def test_nested_lists_are_flattened(client):
    answer = await infer(client, in_json(data=IMAGE.tolist()))
    assert answer.json()["outputs"][0]["data"] == WANTED


async def test_tensors_in_binary_both_ways(client, node):
    answer = await infer(client, binary())
    size = int(answer.headers["Inference-Header-Content-Length"])
    head = json.loads(answer.content[:size])
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert np.frombuffer(answer.content[size:], "<f4").tolist() == WANTED
    (part,) = node.requests[0].inputs
    assert (part.name, part.media_type, part.shape) == ("image", "tensor", (1, 3, 8, 8))


async def test_each_output_may_choose_its_form(client):
    answer = await infer(client, binary(outputs=[{"name": "scores", "parameters": {"binary_data": False}}]))
    assert "Inference-Header-Content-Length" not in answer.headers
    assert answer.json()["outputs"][0]["data"] == WANTED


@pytest.mark.parametrize("encode", [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_body(client, encode):
    name, compress = encode
    request = binary()
    answer = await client.post(
        "/v2/models/vision/infer",
        content=compress(request["content"]),
        headers={**request["headers"], "Content-Encoding": name},
    )
    assert answer.status_code == 200


async def test_a_body_that_inflates_over_the_limit_is_refused(client, settings):
    bomb = gzip.compress(bytes(settings.max_body + 1))
    request = binary(data=bytes(768))
    answer = await client.post(
        "/v2/models/vision/infer",
        content=bomb,
        headers={
            "Inference-Header-Content-Length": "40",
            "Content-Encoding": "gzip",
        },
    )
    assert answer.status_code in (400, 413)
    answer = await client.post("/v2/models/vision/infer", content=bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    assert "error" in answer.json()
    assert request


@pytest.mark.parametrize("cut", [5, 200])
async def test_a_truncated_gzip_body_is_refused(client, cut):
    packed = gzip.compress(json.dumps(in_json()["json"]).encode())
    answer = await client.post(
        "/v2/models/vision/infer", content=packed[:-cut], headers={"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 400


async def test_a_raw_body_is_the_models_only_input(client):
    answer = await client.post(
        "/v2/models/vision/infer",
        content=IMAGE.tobytes(),
        headers={"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"},
    )
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert np.frombuffer(answer.content[size:], "<f4").tolist() == WANTED


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (in_json(datatype="FP64"), "expected FP32 [-1, 3, 8, 8] (-1 is free), found FP64"),
        (in_json(datatype="FLOAT"), "datatype"),
        (in_json(shape=[1, 3, 8, 9]), "found FP32 [1, 3, 8, 9]"),
        (in_json(shape=[3, 8, 8]), "found FP32 [3, 8, 8]"),
        (in_json(shape=[-1, 3, 8, 8]), "0 or more"),
        (in_json(shape=[1.5]), "whole numbers"),
        (in_json(shape=[1 << 20] * 4), "too large"),
        (in_json(name="picture"), "takes the inputs image; found picture"),
        (in_json(data=[1, 2]), "192 elements, data has 2"),
        (in_json(data=["a"] * 192), "numbers"),
        (in_json(data=[[1], [2, 3]]), "regular list"),
        (in_json(data=None), "numbers"),
        ({"json": {"inputs": []}}, "found none"),
        ({"json": {"inputs": [7]}}, "expected objects"),
        ({"json": {"inputs": in_json()["json"]["inputs"] * 2}}, "found image, image"),
        ({"json": {**in_json()["json"], "outputs": [{"name": "logits"}]}}, "found 'logits'"),
        ({"content": b"{oops"}, "JSON"),
        ({"content": b"[]"}, "expected a JSON object"),
        (binary(data=bytes(10)), "binary_data_size says 10"),
        (binary(header={"parameters": {"binary_data_size": -1}}), "binary_data_size"),
        (binary(header={"parameters": {"shared_memory_region": "r"}}), "shared memory"),
        ({"content": b"{}", "headers": {"Inference-Header-Content-Length": "9999"}}, "early"),
        ({"content": b"{}", "headers": {"Inference-Header-Content-Length": "x"}}, "Content-Length"),
    ],
)
async def test_what_does_not_fit_the_model_is_refused(client, node, request_, says):
    answer = await infer(client, request_)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert node.requests == []


async def test_bytes_missing_or_left_over_are_refused(client):
    short, long = binary(), binary()
    short["content"] = short["content"][:-1]
    long["content"] += b"!"
    assert "1 bytes early" in (await infer(client, short)).json()["error"]
    assert "goes on" in (await infer(client, long)).json()["error"]


async def test_a_tensor_larger_than_the_limit_is_refused_before_it_is_leased(client, settings):
    batch = settings.max_body // 768 + 1
    request = binary(header={"shape": [batch, 3, 8, 8], "parameters": {"binary_data_size": batch * 768}})
    answer = await infer(client, request)
    assert answer.status_code == 413


async def test_numbers_that_the_type_cannot_hold_are_refused():
    from hailmesh.hail.arena import Arena
    from hailmesh.hail.buffer import DType
    from hailmesh.hail.errors import UsageError
    from hailmesh.mesh.api.v2.elements import fill_from_json
    from hailmesh.mesh.api.v2.request import TensorIn
    from hailmesh.router.request import Input

    with Arena.create(1 << 20) as arena, arena.lease(2, owner="t", shape=(2,)) as lease:
        entry = Input("x", "tensor", lease, 2, DType.U8, (2,))
        for data in ([300, 1], [-1, 0], [0.5, 1]):
            with pytest.raises(UsageError, match="x: data"):
                fill_from_json(entry, TensorIn("x", DType.U8, (2,), None, data))
        fill_from_json(entry, TensorIn("x", DType.U8, (2,), None, [255, 0]))
        assert lease.buffer.numpy().tolist() == [255, 0]


async def test_timeout_and_priority_set_the_terms(client, node):
    await infer(client, binary(timeout=250_000, priority=2))
    (request,) = node.requests
    assert (request.budgets.total, request.qos_class) == (0.25, "batch")


async def test_other_parameters_reach_the_unit(client, node):
    await infer(client, binary(threshold=0.5))
    part = node.requests[0].inputs[1]
    assert part.name == "params"


async def test_a_unit_without_a_tensor_graph_takes_and_gives_bytes(client):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["one two"]}
    answer = await infer(client, {"json": {"inputs": [tensor]}}, "llm")
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"]) == ("reply", "BYTES")
    assert json.loads(output["data"][0])["text"] == "one two"


async def test_bytes_in_binary_carry_their_length(client):
    data = b"\x03\x00\x00\x00abc"
    tensor = {
        "name": "speech",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    for body, status in ((data, 200), (b"\x09\x00\x00\x00abc", 400)):
        answer = await client.post(
            "/v2/models/asr/infer",
            content=head + body,
            headers={"Inference-Header-Content-Length": str(len(head))},
        )
        assert answer.status_code == status
        if status == 200:
            raw = answer.content[int(answer.headers["Inference-Header-Content-Length"]) :]
            assert json.loads(raw[4:])["crc"] == zlib.crc32(b"abc")


async def test_metadata_of_server_and_model(client):
    server = (await client.get("/v2")).json()
    assert "binary_tensor_data" in server["extensions"]
    model = (await client.get("/v2/models/vision")).json()
    assert model["versions"] == ["1.0.0"]
    assert model["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    config = (await client.get("/v2/models/vision/versions/1.0.0/config")).json()
    assert config["input"][0]["data_type"] == "TYPE_FP32"


async def test_a_version_that_does_not_serve_is_not_found(client):
    answer = await client.get("/v2/models/vision/versions/9/ready")
    assert answer.status_code == 404
    assert "1.0.0" in answer.json()["error"]


async def test_health_follows_the_node(client, node):
    assert (await client.get("/v2/health/live")).json() == {"live": True}
    assert (await client.get("/v2/health/ready")).json() == {"live": True, "ready": True}
    node.ready = False
    assert (await client.get("/v2/health/ready")).status_code == 503
    assert (await client.get("/v2/models/vision/ready")).status_code == 200


async def test_statistics_count_what_was_answered_and_what_failed(client, node):
    await infer(client, binary())
    node.failing["vision"] = Overloaded("busy")
    await infer(client, binary())
    (entry,) = (await client.get("/v2/models/vision/stats")).json()["model_stats"]
    assert entry["inference_count"] == 1
    assert entry["inference_stats"]["fail"]["count"] == 1
    assert entry["inference_stats"]["compute_infer"]["ns"] == 1_000_000


async def test_an_overload_keeps_the_protocols_shape(client, node):
    node.failing["vision"] = Overloaded("busy", retry_after=2, predicted=3)
    answer = await infer(client, binary())
    assert answer.status_code == 429
    assert answer.json() == {"error": "busy", "retry_after": 2, "predicted_ms": 3000}


async def test_the_repository_index_with_an_empty_body(client, node):
    node.unit("asr")["state"] = "failed"
    everything = (await client.post("/v2/repository/index")).json()
    assert {entry["name"]: entry["state"] for entry in everything}["asr"] == "UNAVAILABLE"
    ready = (await client.post("/v2/repository/index", json={"ready": True})).json()
    assert [entry["name"] for entry in ready] == ["vision", "llm"]


async def test_loading_and_unloading_need_the_admin_token(client, node, admin):
    for verb in ("load", "unload"):
        refused = await client.post(f"/v2/repository/models/vision/{verb}")
        assert refused.status_code == 401
        assert isinstance(refused.json()["error"], str)
    assert (await client.post("/v2/repository/models/vision/unload", headers=admin)).status_code == 200
    assert node.unplugged == [("vision", 30.0)]
    assert (await client.post("/v2/repository/models/vision/load", headers=admin)).status_code == 200
    assert node.unit("vision")["state"] == "active"
