"""What only a real connection shows: clients that leave, bodies that are refused half-way, keep-alive."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest


@pytest.fixture
def held(served):
    """The node, whose units wait until the test ends."""

    async def hold():
        served.node.hold = asyncio.Event()
        served.node.entered.clear()
        served.node.requests.clear()

    async def free():
        served.node.hold.set()
        served.node.hold = None

    asyncio.run_coroutine_threadsafe(hold(), served.loop).result()
    yield served
    asyncio.run_coroutine_threadsafe(free(), served.loop).result()


def connect(url):
    split = urlsplit(url)
    return socket.create_connection((split.hostname, split.port))


def post(path, body, *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def cancelled(served):
    """Waits until the node's only request is cancelled."""

    async def wait():
        await served.node.entered.wait()
        token = served.node.requests[0].token
        gone = asyncio.Event()
        token.on_cancel(gone.set)
        return gone

    gone = asyncio.run_coroutine_threadsafe(wait(), served.loop).result()
    return lambda: asyncio.run_coroutine_threadsafe(gone.wait(), served.loop).result()


@pytest.mark.parametrize("stream", [False, True])
def test_closing_the_connection_cancels_the_request(held, stream):
    body = json.dumps(
        {"model": "llm", "stream": stream, "messages": [{"role": "user", "content": "one two"}]}
    ).encode()
    connection = connect(held.url)
    connection.sendall(post("/v1/chat/completions", body, "Content-Type: application/json"))
    until_cancelled = cancelled(held)
    connection.close()
    until_cancelled()
    assert held.node.requests[0].token.cancelled


def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(served):
    with connect(served.url) as connection:
        connection.sendall(
            b"POST /v1/invoke?modalities=image HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
            b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"
        )
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"max_body" in answer


def test_a_connection_serves_on_after_a_refusal(served):
    with httpx.Client(base_url=served.url) as client:
        for _ in range(3):
            assert client.post("/v1/invoke?modalities=smell", content=bytes(300_000)).status_code == 404
            good = client.post("/v1/invoke?modalities=image", content=bytes(300_000))
            assert good.json()["results"]["image"]["bytes"] == 300_000


def test_a_large_multipart_body_arrives_whole(served):
    data = bytes(range(256)) * 40_000
    with httpx.Client(base_url=served.url) as client:
        answer = client.post("/v1/invoke?modalities=image", files={"image": data})
    assert answer.json()["results"]["image"]["bytes"] == len(data)


def test_a_web_socket_of_a_foreign_page_is_refused(served):
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
    with connect(served.url) as connection:
        connection.sendall(
            (
                "GET /v1/units/tracker/session HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n"
                f"Connection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n\r\n"
            ).encode()
        )
        status = connection.makefile("rb").readline()
    assert b" 403 " in status
