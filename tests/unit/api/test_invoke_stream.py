import asyncio
import json
import zlib

import pytest
from conformance.asgi import Exchange

from hailmesh.hail.errors import Overloaded, UnitFault

pytestmark = pytest.mark.anyio


def events(text):
    """The (event, data) pairs of a stream."""
    pairs = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        pairs.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return pairs


async def test_chunks_come_before_the_result_and_the_end(client):
    answer = await client.post("/v1/invoke?modalities=text&stream=true", json={"text": "one two"})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = events(answer.text)
    assert [data["chunk"]["delta"] for _, data in found[:2]] == ["one", " two"]
    assert found[2][1]["result"]["text"] == "one two"
    assert found[2][1]["result"]["unit"] == "llm"
    assert found[3:] == [("", "[DONE]")]


async def test_several_modalities_share_one_stream(client):
    answer = await client.post(
        "/v1/invoke?modalities=text,image&stream=true", json={"text": "one two", "image": ""}
    )
    found = [data for _, data in events(answer.text)[:-1]]
    assert {data["modality"] for data in found if "result" in data} == {"text", "image"}
    assert sum("chunk" in data for data in found) == 2


async def test_a_unit_that_refuses_before_anything_was_sent_refuses_with_its_status(client, node):
    node.failing["llm"] = Overloaded("busy", retry_after=3)
    answer = await client.post("/v1/invoke?modalities=text&stream=true", json={"text": "one"})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "3"


async def test_a_unit_that_fails_later_ends_the_stream_with_an_error_event(client, node):
    node.failing_late["llm"] = UnitFault("trapped")
    answer = await client.post("/v1/invoke?modalities=text&stream=true", json={"text": "one two"})
    assert answer.status_code == 200
    error = {"modality": "text", "error": {"code": "unit_fault", "message": "trapped"}, "status": 502}
    assert events(answer.text)[1:] == [("error", error), ("", "[DONE]")]


async def test_of_several_one_failure_is_an_event_and_the_others_go_on(client, node):
    node.failing["vision"] = UnitFault("trapped")
    answer = await client.post(
        "/v1/invoke?modalities=image,text&stream=true", json={"text": "one", "image": ""}
    )
    found = events(answer.text)
    assert ("error", "image") in [(event, data["modality"]) for event, data in found[:-1]]
    assert any("result" in data and data["modality"] == "text" for _, data in found[:-1])


async def test_a_streamed_upload_runs_while_it_arrives(app, node):
    url = "/v1/invoke?modalities=speech&streamed=true&stream=true"
    exchange = Exchange(app, "POST", url, {"content-type": "audio/wav"})
    await exchange.send(b"12345", more=True)
    await exchange.until(lambda: b"5 bytes" in exchange.body)
    await exchange.send(b"678", more=True)
    await exchange.until(lambda: b"8 bytes" in exchange.body)
    await exchange.send(b"9", more=False)
    await exchange.finished()
    results = [data["result"] for _, data in events(exchange.body.decode())[:-1] if "result" in data]
    assert results[0]["crc"] == zlib.crc32(b"123456789")
    assert node.requests[0].inputs[0].streamed


async def test_a_streamed_multipart_part_runs_while_it_arrives_with_options_from_before_it(app):
    exchange = Exchange(
        app,
        "POST",
        "/v1/invoke?modalities=speech&streamed=true",
        {"content-type": "multipart/form-data; boundary=B"},
    )
    await exchange.send(
        b'--B\r\nContent-Disposition: form-data; name="params"\r\n\r\n{"language":"en"}\r\n'
        b'--B\r\nContent-Disposition: form-data; name="speech"\r\nContent-Type: audio/wav\r\n\r\nabc',
        more=True,
    )
    await exchange.send(b"def\r\n--B--\r\n", more=False)
    await exchange.finished()
    result = exchange.json()["results"]["speech"]
    assert result["crc"] == zlib.crc32(b"abcdef")
    assert result["params"] == {"language": "en"}


async def test_a_streamed_upload_that_breaks_off_is_refused_with_its_reason(app):
    exchange = Exchange(
        app,
        "POST",
        "/v1/invoke?modalities=speech&streamed=true",
        {"content-type": "multipart/form-data; boundary=B"},
    )
    await exchange.send(b'--B\r\nContent-Disposition: form-data; name="speech"\r\n\r\nabcdef', more=True)
    await exchange.send(b"", more=False)
    await exchange.finished()
    assert exchange.status == 400
    assert "closing boundary" in exchange.json()["error"]["message"]


async def test_a_streamed_upload_larger_than_announced_room_is_refused(app, settings):
    exchange = Exchange(
        app, "POST", "/v1/invoke?modalities=speech&streamed=true", {"content-type": "audio/wav"}
    )
    for _ in range(settings.max_body // 65536 + 1):
        await exchange.send(bytes(65536), more=True)
    await exchange.finished()
    assert exchange.status == 413


@pytest.mark.parametrize("query", ["modalities=speech,text&streamed=true", "streamed=true"])
async def test_a_streamed_upload_needs_one_named_modality(client, query):
    answer = await client.post(f"/v1/invoke?{query}", json={})
    assert answer.status_code == 400
    assert "one modality" in answer.json()["error"]["message"]


@pytest.mark.parametrize("query", ["modalities=text", "modalities=text&stream=true"])
async def test_a_client_that_leaves_cancels_its_request_at_once(app, node, query):
    node.hold = asyncio.Event()
    exchange = Exchange(app, "POST", f"/v1/invoke?{query}", {"content-type": "application/json"})
    await exchange.send(b'{"text":"one two"}')
    await node.entered.wait()
    exchange.leave()
    await exchange.finished()
    assert node.requests[0].token.cancelled


async def test_a_client_that_leaves_during_its_upload_leaves_nothing_behind(app, node):
    exchange = Exchange(app, "POST", "/v1/invoke?modalities=image", {"content-type": "image/png"})
    await exchange.send(b"half", more=True)
    exchange.leave()
    await exchange.finished()
    assert node.requests == []
    assert exchange.status == 499


async def test_a_client_that_leaves_during_a_streamed_upload_cancels_it(app, node):
    exchange = Exchange(
        app, "POST", "/v1/invoke?modalities=speech&streamed=true", {"content-type": "audio/wav"}
    )
    await exchange.send(b"half", more=True)
    await exchange.until(lambda: node.requests)
    exchange.leave()
    await exchange.finished()
    assert node.requests[0].token.cancelled
