"""Bad input gets a clear 4xx and harms nothing: the next good request succeeds, and no lease is left."""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path

import httpx
import numpy as np
import pytest


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG file with this header, whatever its pixels are."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def wav(samples: bytes, claimed: int | None = None) -> bytes:
    """A mono 16 kHz WAV file whose header claims `claimed` bytes of samples."""
    size = len(samples) if claimed is None else claimed
    fmt = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", size) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + body


@pytest.fixture(scope="module")
def client(node):
    with node.client() as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_harmed(client, assets: Path):
    """Around every test here: all leases return, and a good request is answered."""
    before = settled_leases(client)
    yield
    good = client.post(
        "/v1/invoke", params={"modalities": "image"}, files={"image": (assets / "coffee.png").read_bytes()}
    )
    assert good.json()["results"]["image"]["labels"][0]["label"] == "espresso"
    assert settled_leases(client) == before


def settled_leases(client: httpx.Client) -> int:
    """The node's lease count, once nothing runs any more."""
    count = -1
    while True:
        report = client.get("/v1/node").json()["memory"]["arena"]
        inside = sum(unit["inside"] for unit in client.get("/v1/units").json()["units"])
        if inside == 0 and report["count"] == count:
            return count
        count = report["count"]
        time.sleep(0.01)


def picture(client: httpx.Client, data: bytes, media_type: str = "image/png") -> httpx.Response:
    return client.post(
        "/v1/invoke", params={"modalities": "image"}, files={"image": ("picture", data, media_type)}
    )


def sound(client: httpx.Client, data: bytes) -> httpx.Response:
    return client.post(
        "/v1/invoke", params={"modalities": "speech"}, files={"speech": ("voice.wav", data, "audio/wav")}
    )


def refusal(response: httpx.Response, status: int) -> str:
    """The message of a refusal with this status."""
    assert response.status_code == status, response.text
    return response.json()["error"]["message"]


def test_a_truncated_picture_is_refused(client, assets):
    whole = (assets / "coffee.png").read_bytes()
    assert "cut short" in refusal(picture(client, whole[: len(whole) // 2]), 400)


def test_an_empty_picture_is_refused(client):
    assert "empty" in refusal(picture(client, b""), 400).lower()


def test_fifty_megapixels_are_refused_by_the_header_alone(client):
    message = refusal(picture(client, png(10_000, 5_000)), 413)
    assert "50" in message or "10000" in message


def test_a_picture_of_an_unknown_type_is_refused(client):
    refusal(picture(client, b"GIF89a" + bytes(100), "image/gif"), 415)


def test_text_in_place_of_a_picture_is_refused(client):
    message = refusal(picture(client, b"this is no picture at all", "image/png"), 400)
    assert "expected a picture (JPEG, PNG or BMP)" in message


def test_a_wav_that_claims_more_samples_than_it_has_is_refused(client):
    message = refusal(sound(client, wav(bytes(3200), claimed=32_000_000)), 400)
    assert "sample" in message.lower() or "truncated" in message.lower() or "byte" in message.lower()


def test_a_wav_without_samples_is_refused(client):
    refusal(sound(client, wav(b"")), 400)


def test_a_prompt_longer_than_the_context_is_refused_with_both_figures(client):
    response = client.post(
        "/v1/chat/completions",
        json={"model": "llm", "messages": [{"role": "user", "content": "river " * 4000}]},
    )
    assert response.status_code in (400, 413)
    message = response.json()["error"]["message"]
    assert "2048" in message and any(figure in message for figure in ("400", "401"))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/invoke?modalities=image&unit=nobody", {"image": ""}),
        ("/v1/chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}),
        ("/v2/models/nobody/infer", {"inputs": []}),
    ],
)
def test_an_unknown_unit_is_not_found(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 404, response.text
    assert "nobody" in response.text


def test_an_unknown_modality_is_not_found(client):
    response = client.post("/v1/invoke?modalities=smell", json={"smell": "rose"})
    assert response.status_code == 404
    assert "smell" in response.text


@pytest.mark.parametrize(
    "dtype,shape", [("FP64", [1, 3, 224, 224]), ("FP32", [1, 3, 100, 224]), ("FP32", [3, 224])]
)
def test_a_wrong_dtype_or_shape_is_refused(client, dtype, shape):
    data = np.zeros(shape, np.float64).ravel().tolist()
    response = client.post(
        "/v2/models/vision/infer",
        json={"inputs": [{"name": "image", "datatype": dtype, "shape": shape, "data": data}]},
    )
    assert response.status_code == 400
    assert "image" in response.json()["error"]


@pytest.mark.parametrize(
    "path", ["/v1/invoke?modalities=text", "/v1/chat/completions", "/v2/models/vision/infer"]
)
def test_invalid_json_is_refused(client, path):
    response = client.post(path, content=b"{not json", headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert "JSON" in response.text


def test_a_body_over_the_limit_is_refused(start_node):
    small = start_node("--plug=vision", HAILMESH_MAX_BODY="64KiB")
    with small.client() as client:
        response = picture(client, bytes(70_000))
        assert refusal(response, 413)
        assert "65536" in response.text or "64" in response.text
