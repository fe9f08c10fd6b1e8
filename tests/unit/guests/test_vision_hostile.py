"""The vision guest against what nobody should send: each time a clear refusal, and the next one is fine."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import TooLarge, UnitFault, Unsupported, UsageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.sandboxes.unit import Graph

FORMATS = ("png", "jpeg", "progressive", "bmp")


@pytest.fixture
def vision(bench_of: Callable[..., Any]) -> Any:
    bench = bench_of("vision", ("image_preprocess",))
    image = TensorSpec("image", DType.F32, (1, 3, 4, 4))
    graph = bench.fake_graph((image,), (TensorSpec("scores", DType.F32, (1, 2)),), _sums)
    bench.graphs = {"net": Graph("net", executor=graph)}
    bench.config = {"graph": "net", "preprocess": {"size": [4, 4]}}
    return bench


def _sums(image: Any) -> tuple[Any, ...]:
    return (np.array([[image.sum(), 0]], np.float32),)


@pytest.fixture
def file(pictures: Any) -> Callable[[str], bytes]:
    """A small good picture in each format."""

    def make(kind: str) -> bytes:
        if kind == "png":
            return bytes(pictures.png(pictures.noise(40, 30)))
        if kind == "bmp":
            return bytes(pictures.bmp(pictures.noise(40, 30)))
        return bytes(pictures.quarters(progressive=kind == "progressive"))

    return make


def refused(vision: Any, data: bytes, kind: type[UsageError], message: str, type_: str = "image/*") -> None:
    with pytest.raises(kind, match=message) as caught:
        vision.ask(vision.part(data, type_))
    assert caught.type is kind


def test_empty_pictures(vision: Any) -> None:
    refused(vision, b"", UsageError, "found an empty input")


def test_garbage_is_shown_by_its_first_bytes(vision: Any) -> None:
    refused(vision, b"\1\2\3 and more", UsageError, "no known format, beginning with 01 02 03 20 61 6e 64 20")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GIF89a" + bytes(20), "GIF"),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(20), "WebP"),
        (b"\0\0\0\x20ftypheic" + bytes(20), "HEIC"),
        (b"II*\0" + bytes(20), "TIFF"),
        (b"RIFF\0\0\0\0WAVEfmt " + bytes(20), "WAV"),
        (b"%PDF-1.7", "PDF"),
    ],
)
def test_other_formats_are_called_by_their_names(vision: Any, data: bytes, name: str) -> None:
    message = rf"expected a picture \(JPEG, PNG or BMP\), found {name}"
    refused(vision, data, Unsupported, message)
    refused(vision, data, Unsupported, message, type_="image/jpeg")


def test_the_content_decides_not_the_declared_image_type(vision: Any, file: Callable[[str], bytes]) -> None:
    assert vision.ask(vision.part(file("png"), "image/webp")).body["labels"]


def test_parts_of_another_type_are_not_read(vision: Any, file: Callable[[str], bytes]) -> None:
    refused(vision, file("png"), Unsupported, "found text/plain", type_="text/plain; charset=utf-8")
    refused(vision, file("png"), Unsupported, "found audio/wav", type_="audio/wav")


def test_exactly_one_picture_is_expected(vision: Any, file: Callable[[str], bytes]) -> None:
    with pytest.raises(UsageError, match=r"expected one input, a picture .*, found 0"):
        vision.ask()
    with pytest.raises(UsageError, match=r"expected one input, a picture .*, found 2"):
        vision.ask(vision.part(file("png")), vision.part(file("bmp")))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_picture_cut_short_anywhere_is_refused(
    vision: Any, file: Callable[[str], bytes], kind: str
) -> None:
    whole = file(kind)
    for size in sorted({3, 9, 20, 30, 60, len(whole) // 3, len(whole) // 2, len(whole) - 30, len(whole) - 1}):
        with pytest.raises(UsageError, match=r"cut short|no known format|damaged") as caught:
            vision.ask(vision.part(whole[:size], "image/*"))
        assert caught.type is UsageError, f"cut after {size} bytes"
    assert vision.ask(vision.part(whole)).body["labels"]


@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_after_a_picture_do_no_harm(vision: Any, file: Callable[[str], bytes], kind: str) -> None:
    padded = vision.ask(vision.part(file(kind) + b"trailing bytes")).body
    assert padded == vision.ask(vision.part(file(kind))).body


def huge(data: bytes, kind: str) -> bytes:
    """The same file, whose header says 10000 × 5000 pixels."""
    if kind == "png":
        return data[:16] + struct.pack(">II", 10000, 5000) + data[24:]
    if kind == "bmp":
        return data[:18] + struct.pack("<ii", 10000, -5000) + data[26:]
    frame = data.index(b"\xff\xc2" if kind == "progressive" else b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", 5000, 10000) + data[frame + 9 :]


@pytest.mark.parametrize("kind", FORMATS)
def test_fifty_megapixels_are_refused_by_the_header(
    vision: Any, file: Callable[[str], bytes], kind: str
) -> None:
    message = r"50000000 pixels \(10000 × 5000\), at most 40000000"
    refused(vision, huge(file(kind), kind), TooLarge, message)
    refused(vision, huge(file(kind), kind)[: 2 * len(file(kind)) // 3], TooLarge, message)


def test_the_limit_of_pixels_is_the_units(vision: Any, pictures: Any) -> None:
    vision.config["max_pixels"] = 1200
    assert vision.ask(vision.part(pictures.png(pictures.noise(40, 30)))).body["labels"]
    refused(vision, pictures.png(pictures.noise(41, 30)), TooLarge, r"1230 pixels \(30 × 41\), at most 1200")


def test_a_picture_too_large_for_the_sandbox_says_so(vision: Any, pictures: Any) -> None:
    vision.memory = 8 << 20
    data = pictures.png(np.zeros((2000, 2000, 3), np.uint8))
    refused(vision, data, TooLarge, "the PNG needs more memory to decode than the sandbox has")
    message = r"input 'part' has \d+ bytes, the sandbox has no room for them"
    refused(vision, data + bytes(9 << 20), TooLarge, message)
    assert vision.ask(vision.part(pictures.quarters())).body["labels"]


@pytest.mark.parametrize("kind", ["png", "bmp"])
def test_pictures_without_pixels(vision: Any, file: Callable[[str], bytes], kind: str) -> None:
    at = 16 if kind == "png" else 18
    data = file(kind)
    refused(vision, data[:at] + bytes(4) + data[at + 4 :], UsageError, "no pixels|damaged|cut short")


@pytest.mark.parametrize("kind", FORMATS)
def test_flipped_bits_never_break_the_sandbox(vision: Any, file: Callable[[str], bytes], kind: str) -> None:
    """Whatever comes is answered or refused; a trap or a fault would be raised as a UnitFault."""
    random = np.random.default_rng(11)
    whole = file(kind)
    for _ in range(60):
        broken = bytearray(whole)
        for _ in range(random.integers(1, 6)):
            broken[random.integers(len(broken))] ^= 1 << random.integers(8)
        try:
            assert vision.ask(vision.part(bytes(broken), "image/*")).body["labels"]
        except UsageError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "params: .* at byte 1"),
        (b"[1]", "params: expected a JSON object"),
        (b'{"task": 1}', r"params\.task: expected a string, found 1"),
        (b'{"top_k": {"a": [1, 2, 3]}}', r"params\.top_k: expected a whole number .*, found \{"),
        (b'{"task": "' + b"x" * 100 + b'"}', "this unit has no task"),
        (b'{"top_k": "' + b"x" * 100 + b'"}', "found string"),
        (b"[" * 100000, "params: "),
    ],
)
def test_options_that_are_no_options(
    vision: Any, file: Callable[[str], bytes], raw: bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        vision.ask(vision.part(file("png")), vision.part(raw, "application/json", "params"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": "other"}, "the unit's image has no graph 'other', which its config names"),
        ({"graph": None}, "config.graph is missing"),
        ({"preprocess": None}, "config.preprocess is missing"),
        ({"classify": {"output": "logits"}}, "graph 'net' has no output 'logits', which its config names"),
        ({"classify": {"activation": "tanh"}}, "classify.activation: expected none, softmax or sigmoid"),
        ({"labels": "ant"}, "config.labels: expected a list"),
        ({"max_pixels": 0}, "config.max_pixels: expected a whole number"),
    ],
)
def test_a_wrong_configuration_is_the_units_fault(
    vision: Any, file: Callable[[str], bytes], change: dict[str, Any], message: str
) -> None:
    vision.config.update(change)
    with pytest.raises(UnitFault, match=message):
        vision.ask(vision.part(file("png")))
