import asyncio
import gzip
import zlib

import httpx
import pytest
from conformance.asgi import Exchange
from hypothesis import given, settings
from hypothesis import strategies as st

from hailmesh.hail.arena import Arena
from hailmesh.hail.errors import TooLarge, UsageError
from hailmesh.mesh.api import body as module
from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.body import FIRST_ROOM, Sink
from hailmesh.mesh.api.multipart import MAX_FIELD, Form
from hailmesh.mesh.api.ports import ApiSettings

LIMIT = 8 << 20
DISPOSITION = b'Content-Disposition: form-data; name="%s"\r\n\r\n'


def content(lease, size):
    return lease.buffer.numpy().tobytes()[:size]


def test_a_sink_of_known_size_never_moves():
    with Arena.create(16 << 20) as arena:
        sink = Sink(arena, 300_000, LIMIT)
        first = sink.lease
        for at in range(0, 300_000, 7_000):
            sink.write(bytes([at % 251]) * 7_000, 0, min(7_000, 300_000 - at))
        with sink.take() as lease:
            assert lease is first
            assert sink.size == 300_000


def test_a_sink_that_guessed_grows_and_keeps_what_it_has():
    data = bytes(range(256)) * 4096
    with Arena.create(16 << 20) as arena:
        sink = Sink(arena, None, LIMIT)
        for at in range(0, len(data), 100_000):
            sink.write(data, at, at + 100_000)
        assert len(data) > FIRST_ROOM
        with sink.take() as lease:
            assert content(lease, sink.size) == data
        assert arena.count == 0


def test_a_sink_far_too_large_gives_its_room_back():
    with Arena.create(16 << 20) as arena:
        sink = Sink(arena, LIMIT, LIMIT)
        sink.write(b"small")
        with sink.take() as lease:
            assert arena.used < 1 << 20
            assert content(lease, 5) == b"small"


def test_a_sink_over_its_limit_refuses_and_returns_its_lease():
    with Arena.create(16 << 20) as arena:
        sink = Sink(arena, None, 100)
        with pytest.raises(TooLarge, match="100 bytes"):
            sink.write(bytes(FIRST_ROOM + 1))
        sink.release()
        assert arena.count == 0


def test_an_empty_input_still_has_a_lease():
    with Arena.create(1 << 20) as arena:
        sink = Sink(arena, 0, LIMIT)
        with sink.take():
            assert sink.size == 0


parts = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=8),
    st.binary(max_size=400) | st.sampled_from([b"\r\n", b"\r\n--", b"--", b"\r\n--BOUNDAR", b"\r\r\n\r"]),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(parts, st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_a_form_is_the_same_however_it_is_cut(fields, cuts):
    whole = b""
    for name, data in fields.items():
        whole += b'--BOUNDARY\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (
            name.encode(),
            data,
        )
    whole += b"--BOUNDARY--\r\n"
    form = Form("multipart/form-data; boundary=BOUNDARY", lambda name: None)
    at = 0
    while at < len(whole):
        step = cuts[at % len(cuts)]
        form.feed(whole[at : at + step])
        at += step
    form.finish()
    assert {name: bytes(part.data) for name, part in form.parts.items()} == fields
    assert all(part.ended for part in form.parts.values())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_make_a_form_raise_anything_but_a_usage_error(data):
    form = Form("multipart/form-data; boundary=B", lambda name: None)
    try:
        form.feed(b"--B\r\n" + data)
        form.finish()
    except UsageError:
        pass


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"Content-Type: text/plain\r\n\r\n", "no name"),
        (DISPOSITION % b"a" + b"\r\n--B\r\n" + DISPOSITION % b"a", "two parts"),
        (b"no colon\r\n\r\n", "malformed"),
    ],
)
def test_parts_that_cannot_be_told_are_refused(head, says):
    form = Form("multipart/form-data; boundary=B", lambda name: None)
    with pytest.raises(UsageError, match=says):
        form.feed(b"--B\r\n" + head)


def test_a_text_field_is_bounded_and_utf_8():
    form = Form("multipart/form-data; boundary=B", lambda name: None)
    form.feed(b"--B\r\n" + DISPOSITION % b"params")
    with pytest.raises(TooLarge):
        form.feed(bytes(MAX_FIELD + 100))
    form = Form("multipart/form-data; boundary=B", lambda name: None)
    form.feed(b"--B\r\n" + DISPOSITION % b"params" + b"\xff\r\n--B--\r\n")
    with pytest.raises(UsageError, match="UTF-8"):
        form.text("params")


@pytest.mark.anyio
async def test_many_parts_are_refused(client):
    files = [(f"f{index}", b"x") for index in range(40)]
    answer = await client.post("/v1/invoke", files=files)
    assert answer.status_code == 400
    assert "more than 32 parts" in answer.json()["error"]["message"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("media_type", "modality"), [("image/jpeg", "image"), ("audio/wav", "speech"), ("text/plain", "text")]
)
async def test_a_raw_bodys_media_type_names_its_modality(client, media_type, modality):
    answer = await client.post("/v1/invoke", content=b"x", headers={"Content-Type": media_type})
    assert list(answer.json()["results"]) == [modality]


@pytest.mark.anyio
async def test_a_compressed_picture_arrives_inflated(client):
    data = bytes(100_000)
    answer = await client.post(
        "/v1/invoke?modalities=image",
        content=gzip.compress(data),
        headers={"Content-Encoding": "gzip", "Content-Type": "image/bmp"},
    )
    assert answer.json()["results"]["image"]["crc"] == zlib.crc32(data)


@pytest.mark.anyio
async def test_bytes_after_a_gzip_bodys_end_are_refused(client):
    answer = await client.post(
        "/v1/invoke?modalities=image",
        content=gzip.compress(b"x") + b"tail",
        headers={"Content-Encoding": "gzip"},
    )
    assert answer.status_code == 400


@pytest.mark.anyio
async def test_a_client_that_stalls_is_told_so_and_leaves_nothing_behind(app, node, monkeypatch):
    monkeypatch.setattr(module.chunks, "__defaults__", (0.01,))
    exchange = Exchange(app, "POST", "/v1/invoke?modalities=image", {"content-type": "image/png"})
    await exchange.send(b"half", more=True)
    await exchange.finished()
    assert exchange.status == 408
    assert exchange.json()["error"]["code"] == "stalled"
    assert node.requests == []


@pytest.mark.anyio
async def test_a_full_arena_is_a_503_that_says_when_to_come_back(client_of, node):
    client = client_of(create_app(node, ApiSettings("127.0.0.1", 8080, 1 << 30, "t")))
    length = {"Content-Length": str(200 << 20), "Content-Type": "image/png"}
    request = httpx.Request(
        "POST", "http://127.0.0.1/v1/invoke?modalities=image", headers=length, content=b"x"
    )
    answer = await client.send(request)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "out_of_arena"
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.anyio
async def test_cancelling_the_servers_task_cancels_the_request(app, node):
    node.hold = asyncio.Event()
    exchange = Exchange(app, "POST", "/v1/invoke?modalities=image", {"content-type": "image/png"})
    await exchange.send(b"x")
    await node.entered.wait()
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.finished()
    assert node.requests[0].token.cancelled
