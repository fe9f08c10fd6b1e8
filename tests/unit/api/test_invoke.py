import asyncio
import base64
import json
import struct
import zlib

import httpx
import orjson
import pytest

from hailmesh.hail.errors import DeadlineExceeded, Overloaded, UnitFault, UsageError
from hailmesh.mesh.api.call import dumps
from hailmesh.router.qos import Policy

pytestmark = pytest.mark.anyio

PICTURE = bytes(range(256)) * 300


async def ask(client, *, modalities="image", headers=None, **body):
    return await client.post(f"/v1/invoke?modalities={modalities}", headers=headers, **body)


async def test_a_multipart_picture_reaches_its_unit_byte_for_byte(client):
    answer = await ask(client, files={"image": ("cat.jpg", PICTURE, "image/jpeg")})
    assert answer.status_code == 200
    result = answer.json()["results"]["image"]
    assert (result["bytes"], result["crc"]) == (len(PICTURE), zlib.crc32(PICTURE))
    assert result["type"] == "image/jpeg"
    assert (result["unit"], result["version"]) == ("vision", "1.0.0")
    assert set(result["timings"]) == {"queue", "sandbox", "bridge", "kernel", "gate", "total"}


async def test_a_raw_body_is_the_one_modality_asked(client):
    answer = await ask(client, content=PICTURE, headers={"Content-Type": "image/png"})
    result = answer.json()["results"]["image"]
    assert (result["crc"], result["type"]) == (zlib.crc32(PICTURE), "image/png")


async def test_a_chunked_body_without_a_length_arrives_whole(client):
    async def pieces():
        for at in range(0, len(PICTURE), 1000):
            yield PICTURE[at : at + 1000]

    answer = await ask(client, content=pieces(), headers={"Content-Type": "image/png"})
    assert answer.json()["results"]["image"]["crc"] == zlib.crc32(PICTURE)


async def test_base64_and_text_in_json(client):
    encoded = base64.b64encode(PICTURE).decode()
    answer = await ask(client, modalities="image,text", json={"image": encoded, "text": "hello there"})
    results = answer.json()["results"]
    assert list(results) == ["image", "text"]
    assert results["image"]["crc"] == zlib.crc32(PICTURE)
    assert results["text"]["text"] == "hello there"


async def test_a_data_url_carries_its_type(client):
    url = "data:image/bmp;base64," + base64.b64encode(b"BM").decode()
    answer = await ask(client, json={"image": url})
    assert answer.json()["results"]["image"]["type"] == "image/bmp"


async def test_without_modalities_the_bodys_parts_decide(client):
    answer = await client.post("/v1/invoke", files={"image": PICTURE}, data={"text": "hi"})
    assert set(answer.json()["results"]) == {"image", "text"}


async def test_all_modalities_run_at_the_same_time(client, node):
    node.hold = asyncio.Event()
    asking = asyncio.ensure_future(
        ask(
            client,
            modalities="image,text,speech",
            files={"image": PICTURE, "speech": ("a.wav", b"RIFF", "audio/wav")},
            data={"text": "hi"},
        )
    )
    while len(node.requests) < 3:
        await asyncio.sleep(0)
    node.hold.set()
    answer = await asking
    assert {request.unit for request in node.requests} == {"vision", "llm", "asr"}
    assert len({request.id for request in node.requests}) == 3
    assert answer.json()["results"]["speech"]["text"] == "4 bytes of audio/wav"


async def test_one_modality_that_fails_spares_the_others(client, node):
    node.failing["asr"] = UsageError("not a recording")
    answer = await ask(client, modalities="image,speech", files={"image": PICTURE, "speech": b"x"})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert results["speech"] == {"error": {"code": "usage", "message": "not a recording"}, "status": 400}
    assert results["image"]["bytes"] == len(PICTURE)


async def test_when_all_fail_the_answer_has_the_status_of_the_first(client, node):
    node.failing["vision"] = DeadlineExceeded("too late")
    node.failing["asr"] = UsageError("not a recording")
    answer = await ask(client, modalities="image,speech", files={"image": PICTURE, "speech": b"x"})
    assert answer.status_code == 504
    body = answer.json()
    assert body["error"]["code"] == "deadline_exceeded"
    assert body["results"]["speech"]["status"] == 400


async def test_options_of_one_modality_may_come_bare_or_keyed(client):
    for params in ({"top_k": 3}, {"image": {"top_k": 3}}):
        answer = await ask(client, files={"image": PICTURE}, data={"params": json.dumps(params)})
        assert answer.json()["results"]["image"]["params"] == {"top_k": 3}


async def test_options_of_several_modalities_are_keyed_by_modality(client):
    params = {"image": {"top_k": 3}, "text": {"max_tokens": 1}}
    body = {"image": "", "text": "a b", "params": params}
    results = (await ask(client, modalities="image,text", json=body)).json()["results"]
    assert results["image"]["params"] == {"top_k": 3}
    assert results["text"]["text"] == "a"
    bare = await ask(client, modalities="image,text", json={**body, "params": {"top_k": 3}})
    assert bare.status_code == 400
    assert "modality" in bare.json()["error"]["message"]


async def test_options_of_a_raw_body_come_in_the_query(client):
    answer = await client.post(
        "/v1/invoke", params={"modalities": "image", "params": '{"top_k":2}'}, content=PICTURE
    )
    assert answer.json()["results"]["image"]["params"] == {"top_k": 2}


async def test_a_named_unit_is_asked_instead_of_the_modalitys_own(client):
    answer = await client.post("/v1/invoke?modalities=speech&unit=vision", files={"speech": b"abc"})
    assert answer.json()["results"]["speech"]["unit"] == "vision"


@pytest.mark.parametrize(
    ("query", "body", "status", "says"),
    [
        ("modalities=image", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "JSON"),
        ("modalities=image", {"json": []}, 400, "expected a JSON object"),
        ("modalities=image", {"json": {"image": 7}}, 400, "base64"),
        ("modalities=image", {"json": {"image": "&&&"}}, 400, "not valid base64"),
        ("modalities=image", {"json": {"image": "", "text": "hi"}}, 400, "not asked for"),
        ("modalities=image,text", {"json": {"text": "hi"}}, 400, "'image' was asked for"),
        ("modalities=image", {"json": {"image": "", "params": 3}}, 400, "params"),
        ("modalities=image,image", {"json": {}}, 400, "different names"),
        ("modalities=image,", {"json": {}}, 400, "different names"),
        ("modalities=image,text", {"content": b"x"}, 400, "Content-Type"),
        ("", {"json": {}}, 400, "no input"),
        ("modalities=smell", {"json": {"smell": "rose"}}, 404, "smell"),
        ("modalities=image&unit=nobody", {"json": {"image": ""}}, 404, "nobody"),
        ("modalities=image,text&unit=llm", {"json": {"text": ""}}, 400, "one modality"),
        ("modalities=image&stream=perhaps", {"json": {"image": ""}}, 400, "true or false"),
        (
            "modalities=image",
            {"content": b"--b\r\n", "headers": {"Content-Type": "multipart/form-data"}},
            400,
            "boundary",
        ),
        (
            "modalities=image",
            {"content": b"zip", "headers": {"Content-Encoding": "br", "Content-Type": "image/png"}},
            415,
            "Content-Encoding",
        ),
    ],
)
async def test_bad_requests_are_refused_with_their_reason(client, query, body, status, says):
    answer = await client.post(f"/v1/invoke?{query}", **body)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize("at", [0, 40, 150, -3])
async def test_a_multipart_body_that_is_cut_off_is_refused(client, at):
    whole = httpx.Request("POST", "http://x", files={"image": ("a.png", bytes(100), "image/png")})
    answer = await ask(
        client, content=whole.read()[:at], headers={"Content-Type": whole.headers["Content-Type"]}
    )
    assert answer.status_code == 400
    assert "multipart" in answer.json()["error"]["message"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(client, settings, node):
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 65536
            yield bytes(65536)

    announced = await ask(client, content=b"x", headers={"Content-Length": str(settings.max_body + 1)})
    assert announced.status_code == 413
    assert str(settings.max_body) in announced.json()["error"]["message"]
    unannounced = await ask(client, content=endless(), headers={"Content-Type": "image/png"})
    assert unannounced.status_code == 413
    assert read <= settings.max_body + 2 * 65536
    assert node.requests == []


async def test_an_overload_says_when_to_come_back_and_what_was_predicted(client, node):
    node.failing["vision"] = Overloaded("busy", retry_after=1.25, predicted=2.5)
    answer = await ask(client, files={"image": PICTURE})
    assert answer.status_code == 429
    assert (answer.headers["Retry-After"], answer.headers["retry-after-ms"]) == ("2", "1250")
    assert answer.json()["error"]["predicted_ms"] == 2500
    assert answer.json()["error"]["retry_after"] == 1.25


async def test_headers_set_the_terms_and_tell_the_timings(client, node):
    answer = await ask(
        client,
        content=PICTURE,
        headers={"X-QoS-Class": "batch", "X-Deadline-Ms": "1500", "X-Request-Id": "mine-1"},
    )
    (request,) = node.requests
    assert (request.qos_class, request.budgets.total) == ("batch", 1.5)
    assert request.token.deadline_ns == request.deadline_ns
    assert request.id.startswith("mine-1-")
    assert answer.headers["X-Request-Id"] == "mine-1" == answer.json()["id"]
    assert answer.headers["X-Unit-Version"] == "vision/1.0.0"
    assert "kernel;dur=0.500" in answer.headers["Server-Timing"]


async def test_the_units_policy_bounds_what_a_caller_asks_for(client, node):
    node.policies["vision"] = Policy(default="batch", ceiling="interactive", penalty=2.0)
    await ask(client, content=PICTURE, headers={"X-QoS-Class": "realtime"})
    (request,) = node.requests
    assert (request.qos_class, request.penalty) == ("interactive", 2.0)


@pytest.mark.parametrize(
    "headers", [{"X-Deadline-Ms": "soon"}, {"X-Deadline-Ms": "-5"}, {"X-QoS-Class": "urgent"}]
)
async def test_senseless_terms_are_refused(client, headers):
    assert (await ask(client, content=PICTURE, headers=headers)).status_code == 400


async def test_an_id_that_could_forge_headers_is_replaced(client):
    answer = await ask(client, content=PICTURE, headers={"X-Request-Id": "a b\tc"})
    assert answer.headers["X-Request-Id"] != "a b\tc"


async def test_a_deadline_that_passes_is_a_504(client, node):
    node.hold = asyncio.Event()
    answer = await ask(client, content=PICTURE, headers={"X-Deadline-Ms": "20"})
    assert answer.status_code == 504


async def test_a_reply_tensor_comes_in_base64_with_its_type_and_shape(client):
    answer = await ask(client, files={"image": PICTURE}, data={"params": '{"embed": true}'})
    embedding = answer.json()["results"]["image"]["tensors"]["embedding"]
    assert (embedding["datatype"], embedding["shape"]) == ("FP32", [2])
    assert struct.unpack("<2f", base64.b64decode(embedding["data"])) == (0.5, -1.0)


async def test_the_answer_is_closed_once_it_was_read(client, node):
    await ask(client, content=PICTURE)
    await ask(client, modalities="image,text", json={"image": "", "text": "x"})
    assert len(node.answers) == 3
    assert all(answer.closed for answer in node.answers)


@pytest.mark.parametrize("depth", [300, 1000])
async def test_params_nested_too_deeply_are_the_clients_fault(client, depth):
    params = '{"a":' * depth + "1" + "}" * depth
    answer = await client.post(
        "/v1/invoke", params={"modalities": "image"}, files={"image": b"x"}, data={"params": params}
    )
    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["error"]["message"]


def test_a_reply_nested_too_deeply_is_the_units_fault():
    with pytest.raises(UnitFault, match="can't be written as JSON"):
        dumps(orjson.loads(b"[" * 300 + b"]" * 300))
