import asyncio
import json

import pytest
from conformance.asgi import Exchange

from hailmesh.hail.errors import Overloaded, UnitFault
from hailmesh.mesh.api.openai import language

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "one two three"}]


async def chat(client, **body):
    return await client.post("/v1/chat/completions", json={"model": "llm", "messages": HELLO, **body})


def chunks(text):
    blocks = text.strip().split("\n\n")
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


async def test_a_plain_chat(client):
    answer = await chat(client)
    body = answer.json()
    (choice,) = body["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "one two three", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert (body["object"], body["model"]) == ("chat.completion", "llm")
    assert answer.headers["X-Unit-Version"] == "llm/1.0.0"


async def test_a_streamed_chat_opens_with_the_role_and_closes_with_the_reason(client):
    answer = await chat(client, stream=True)
    found = chunks(answer.text)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in found) == "one two three"
    assert found[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert len({chunk["id"] for chunk in found}) == 1
    assert all("usage" not in chunk for chunk in found)


async def test_usage_comes_last_when_asked_for(client):
    found = chunks((await chat(client, stream=True, stream_options={"include_usage": True})).text)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 6
    assert all(chunk["usage"] is None for chunk in found[:-1])


async def test_options_reach_the_unit_under_its_names(client, node):
    await chat(
        client,
        max_completion_tokens=9,
        temperature=0.5,
        top_p=1,
        seed=7,
        stop="three",
        frequency_penalty=0,
        n=1,
        logprobs=True,
        top_logprobs=2,
        user="someone",
    )
    assert node.answers[-1].body["params"] == {
        "messages": HELLO,
        "stream": False,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 1.0,
        "seed": 7,
        "stop": ["three"],
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert node.answers[-1].body["text"] == "one two"


async def test_options_left_out_stay_the_units_own(client, node):
    await chat(client, temperature=None, stop=None)
    assert node.answers[-1].body["params"] == {"messages": HELLO, "stream": False}


async def test_text_parts_and_developer_messages_become_what_the_unit_takes(client, node):
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    await chat(
        client, messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    )
    assert node.answers[-1].body["text"] == "a b"
    assert node.answers[-1].body["usage"]["prompt_tokens"] == 4


async def test_flex_is_a_batch_request(client, node):
    await chat(client, service_tier="flex")
    assert node.requests[-1].qos_class == "batch"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [7]}, "messages[0]"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"tools": [{}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"model": "vision"}, "model"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_with_the_fields_name(client, change, param):
    answer = await chat(client, **change)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert param.split(".")[-1].split("[")[0] in error["message"]


async def test_an_unknown_model_is_not_found_in_openais_words(client):
    answer = await chat(client, model="gpt-9")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert "llm (text)" in answer.json()["error"]["message"]


async def test_invalid_json_is_refused_in_openais_shape(client):
    answer = await client.post("/v1/chat/completions", content=b"{nope")
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_an_overload_is_a_rate_limit_with_the_wait_in_milliseconds(client, node):
    node.failing["llm"] = Overloaded("busy", retry_after=0.3, predicted=9)
    for stream in (False, True):
        answer = await chat(client, stream=stream)
        assert answer.status_code == 429
        assert answer.headers["retry-after-ms"] == "300"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert answer.json()["error"]["predicted_ms"] == 9000


async def test_a_stream_that_breaks_ends_in_an_error_event_and_no_done(client, node):
    node.failing_late["llm"] = UnitFault("trapped")
    answer = await chat(client, stream=True)
    last = answer.text.strip().split("\n\n")[-1]
    name, data = last.split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["message"] == "trapped"


async def test_leaving_a_streamed_chat_cancels_it(app, node):
    node.hold = asyncio.Event()
    exchange = Exchange(app, "POST", "/v1/chat/completions", {"content-type": "application/json"})
    await exchange.send(json.dumps({"model": "llm", "messages": HELLO, "stream": True}).encode())
    await exchange.until(lambda: b"one" in exchange.body)
    exchange.leave()
    await exchange.finished()
    assert node.requests[0].token.cancelled
    assert b"[DONE]" not in exchange.body


async def test_a_text_completion_plain_and_streamed(client, node):
    body = {"model": "llm", "prompt": "a b", "max_tokens": 5}
    plain = (await client.post("/v1/completions", json=body)).json()
    assert (plain["object"], plain["choices"][0]["text"]) == ("text_completion", "a b")
    assert node.answers[-1].body["params"] == {"prompt": "a b", "stream": False, "max_tokens": 5}
    streamed = await client.post("/v1/completions", json={**body, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks(streamed.text)) == "a b"


async def test_models_are_the_active_units(client, node):
    node.unit("asr")["state"] = "draining"
    listed = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["vision", "llm"]
    one = (await client.get("/v1/models/llm")).json()
    assert (one["object"], one["created"], one["owned_by"]) == ("model", 1_700_000_000, "hailmesh")
    assert (await client.get("/v1/models/none")).json()["error"]["code"] == "model_not_found"


async def transcribe(client, file=("a.wav", b"RIFF1234", "audio/wav"), **fields):
    return await client.post(
        "/v1/audio/transcriptions", files={"file": file}, data={"model": "asr", **fields}
    )


async def test_a_transcription_as_json_and_as_text(client):
    assert (await transcribe(client)).json() == {"text": "8 bytes of audio/wav"}
    plain = await transcribe(client, response_format="text")
    assert plain.text == "8 bytes of audio/wav\n"
    assert plain.headers["Content-Type"].startswith("text/plain")


async def test_a_transcriptions_options_reach_the_unit(client, node):
    await transcribe(client, language="en", temperature="0.2", prompt="names")
    assert node.answers[-1].body["params"] == {"language": "en", "temperature": 0.2, "prompt": "names"}


async def test_a_streamed_transcription_ends_with_the_whole_text(client):
    found = chunks((await transcribe(client, stream="true")).text)
    assert [chunk["type"] for chunk in found] == ["transcript.text.delta", "transcript.text.done"]
    assert found[-1]["text"] == "8 bytes of audio/wav"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "srt"}, "response_format"),
        ({"response_format": "poem"}, "response_format"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities"),
        ({"temperature": "hot"}, "temperature"),
        ({"model": "llm"}, "model"),
    ],
)
async def test_a_transcription_that_cannot_be_had_is_refused(client, fields, param):
    answer = await transcribe(client, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_a_transcription_without_file_or_model_is_refused(client):
    no_file = await client.post("/v1/audio/transcriptions", files={"model": (None, "asr")})
    assert no_file.json()["error"]["param"] == "file"
    no_model = await client.post("/v1/audio/transcriptions", files={"file": b"x"})
    assert no_model.json()["error"]["param"] == "model"
    no_form = await client.post("/v1/audio/transcriptions", json={})
    assert no_form.status_code == 400


@pytest.mark.parametrize("role", [[], {}, 1, None])
async def test_a_role_of_a_strange_kind_is_refused_by_name(client, role):
    answer = await chat(client, messages=[{"role": role, "content": "hi"}])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[0].role"


@pytest.mark.parametrize("usage", [[], "x", {"prompt_tokens": "x"}, {"completion_tokens": None}])
def test_a_count_that_is_no_count_is_zero(usage):
    assert language.usage({"usage": usage}) == {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
    }
