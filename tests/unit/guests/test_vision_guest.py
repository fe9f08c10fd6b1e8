"""The vision guest: pictures come out pixel by pixel, tasks and tensors do what the request asks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import UsageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.unit import Graph

Array = npt.NDArray[Any]
IMAGE = TensorSpec("image", DType.F32, (-1, 3, -1, -1))
SCORES = np.array([[0.1, 0.5, 0.05, 0.3, 0.05]], np.float32)


@pytest.fixture
def vision(bench_of: Callable[..., Any]) -> Any:
    """A bench whose graph keeps the picture it is given, and answers fixed scores and an embedding."""
    bench = bench_of("vision", ("image_preprocess",))
    outputs = (TensorSpec("scores", DType.F32, (-1, 5)), TensorSpec("embedding", DType.F32, (-1, 4)))
    embedding = np.array([[3, 0, -4, 0]], np.float32)
    bench.fake = bench.fake_graph((IMAGE,), outputs, lambda image: (SCORES, embedding))
    bench.graphs = {"net": Graph("net", executor=bench.fake)}
    bench.config = {
        "graph": "net",
        "tasks": ["classify", "embed"],
        "labels": ["ant", "bee", "cat", "dog"],
        "preprocess": {"size": [8, 8], "mode": "stretch"},
    }
    return bench


def seen(bench: Any, data: bytes, shape: tuple[int, ...]) -> Array:
    """The pixels [height, width, 3] that reach the graph when it takes the picture at its own size."""
    bench.config["preprocess"] = {"size": list(shape[:2]), "mode": "stretch"}
    bench.ask(bench.part(data, "image/*"))
    (image,) = bench.fake.given[-1]
    return np.rint(image[0].transpose(1, 2, 0)).astype(int)


def test_png_pixels_arrive_unchanged(vision: Any, pictures: Any) -> None:
    pixels = pictures.noise(37, 53)
    assert (seen(vision, pictures.png(pixels), pixels.shape) == pixels).all()


def test_a_picture_of_whole_granules_arrives_unchanged(vision: Any, pictures: Any) -> None:
    pixels = pictures.noise(256, 256)
    assert (seen(vision, pictures.png(pixels), pixels.shape) == pixels).all()


def test_transparency_is_dropped(vision: Any, pictures: Any) -> None:
    pixels = pictures.noise(20, 31, 4)
    assert (seen(vision, pictures.png(pixels), pixels.shape) == pixels[..., :3]).all()


@pytest.mark.parametrize("channels", [1, 2])
def test_grey_becomes_three_equal_channels(vision: Any, pictures: Any, channels: int) -> None:
    pixels = pictures.noise(20, 31, channels)
    assert (seen(vision, pictures.png(pixels), pixels.shape) == pixels[..., :1].repeat(3, 2)).all()


def test_sixteen_bits_become_eight(vision: Any, pictures: Any) -> None:
    pixels = pictures.noise(9, 11).astype(np.uint16) * 256 + 77
    assert (seen(vision, pictures.png(pixels), pixels.shape) == pixels >> 8).all()


def test_palettes_are_looked_up(vision: Any, pictures: Any) -> None:
    palette = pictures.noise(1, 256)[0]
    indices = pictures.noise(15, 21, 1)
    expected = palette[indices[..., 0]]
    assert (seen(vision, pictures.png(indices, palette), expected.shape) == expected).all()


@pytest.mark.parametrize("top_down", [False, True])
def test_bmp_pixels_arrive_unchanged(vision: Any, pictures: Any, top_down: bool) -> None:
    pixels = pictures.noise(14, 23)
    assert (seen(vision, pictures.bmp(pixels, top_down), pixels.shape) == pixels).all()


@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_pixels_arrive_nearly_unchanged(vision: Any, pictures: Any, progressive: bool) -> None:
    expected = pictures.quarter_pixels.astype(int)
    found = seen(vision, pictures.quarters(progressive), expected.shape)
    edges = np.zeros((256, 256), bool)
    edges[112:144] = edges[:, 112:144] = True
    assert np.abs(found - expected)[~edges].max() <= 4


TURNS: dict[int, Callable[[Array], Array]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_photo_is_turned_as_the_camera_was_held(
    vision: Any, pictures: Any, orientation: int, order: str
) -> None:
    jpeg = pictures.quarters()
    byte_order = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    tiff = byte_order + struct.pack(order + "IH", 8, 1) + entry + bytes(4)
    exif = b"Exif\0\0" + tiff
    turned = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + jpeg[2:]
    expected = TURNS[orientation](seen(vision, jpeg, (256, 256)))
    assert (seen(vision, turned, (256, 256)) == expected).all()


def test_classify_gives_labels_by_falling_score(vision: Any, pictures: Any) -> None:
    answer = vision.ask(vision.part(pictures.png(pictures.noise(5, 5)), "image/png"))
    assert [entry["index"] for entry in answer.body["labels"]] == [1, 3, 0, 2, 4]
    assert answer.body["labels"][0] == {"label": "bee", "score": 0.5, "index": 1}
    assert answer.body["labels"][4]["label"] == "4", "a class without a label shows its number"


def test_top_k_limits_the_labels(vision: Any, pictures: Any) -> None:
    picture = vision.part(pictures.png(pictures.noise(5, 5)), "image/png")
    assert len(vision.ask(picture, top_k=2).body["labels"]) == 2
    assert len(vision.ask(picture, top_k=1000).body["labels"]) == 5
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(UsageError, match=r"params\.top_k: expected a whole number from 1 to 1000"):
            vision.ask(picture, top_k=wrong)


def test_scores_can_be_made_of_logits(vision: Any, pictures: Any) -> None:
    vision.config["classify"] = {"activation": "softmax"}
    labels = vision.ask(vision.part(pictures.png(pictures.noise(5, 5)), "image/png")).body["labels"]
    expected = np.exp(SCORES[0]) / np.exp(SCORES[0]).sum()
    assert [entry["score"] for entry in labels] == pytest.approx(sorted(expected, reverse=True), rel=1e-6)


def test_embed_gives_numbers_or_a_tensor(vision: Any, pictures: Any) -> None:
    picture = vision.part(pictures.png(pictures.noise(5, 5)), "image/png")
    assert vision.ask(picture, task="embed").body == {"embedding": [3, 0, -4, 0]}
    unit = vision.ask(picture, task="embed", normalize=True).body["embedding"]
    assert unit == pytest.approx([0.6, 0, -0.8, 0])
    answer = vision.ask(picture, task="embed", format="tensor")
    assert answer.body == {"outputs": ["embedding"]}
    assert answer.tensors["embedding"].tolist() == [[3, 0, -4, 0]]
    answer = vision.ask(picture, task="embed", format="tensor", normalize=True)
    assert answer.tensors["embedding"].tolist() == [pytest.approx([0.6, 0, -0.8, 0])]


def test_only_offered_tasks_run(vision: Any, pictures: Any) -> None:
    picture = vision.part(pictures.png(pictures.noise(5, 5)), "image/png")
    for task in ("detect", "juggle"):
        with pytest.raises(UsageError, match=f"this unit has no task '{task}'"):
            vision.ask(picture, task=task)


def test_an_instance_answers_request_after_request(vision: Any, pictures: Any) -> None:
    """As in a session: nothing of one request is left for the next, good or refused."""
    small, large = pictures.png(pictures.noise(5, 5)), pictures.quarters()
    with Instance(vision.unit, vision.module) as instance:
        before = vision.arena.count
        for data in (small, large, b"not a picture", large, small) * 3:
            run = vision.run_of(vision.part(data))
            if data == b"not a picture":
                with pytest.raises(UsageError):
                    vision.answer(instance, run)
            else:
                assert vision.answer(instance, run).body["labels"][0]["label"] == "bee"
            vision.release_parts()
            assert vision.arena.count == before


@pytest.fixture
def tensors(bench_of: Callable[..., Any]) -> Any:
    """A bench whose graph adds and multiplies two tensors."""
    bench = bench_of("vision")
    pair = (TensorSpec("a", DType.F32, (-1, 3)), TensorSpec("b", DType.F32, (-1, 3)))
    results = (TensorSpec("sum", DType.F32, (-1, 3)), TensorSpec("product", DType.F32, (-1, 3)))
    bench.graphs = {
        "net": Graph("net", executor=bench.fake_graph(pair, results, lambda a, b: (a + b, a * b)))
    }
    bench.config = {"infer": {"graph": "net"}}
    return bench


A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[10, 20, 30], [40, 50, 60]], np.float32)


def test_tensors_are_matched_by_name_and_all_outputs_come_back(tensors: Any) -> None:
    answer = tensors.ask(tensors.tensor("b", B), tensors.tensor("a", A))
    assert answer.body == {"outputs": ["sum", "product"]}
    assert (answer.tensors["sum"] == A + B).all()
    assert (answer.tensors["product"] == A * B).all()


def test_only_wanted_outputs_come_back(tensors: Any) -> None:
    answer = tensors.ask(tensors.tensor("a", A), tensors.tensor("b", B), outputs=["product"])
    assert answer.body == {"outputs": ["product"]}
    assert list(answer.tensors) == ["product"]


@pytest.mark.parametrize(
    ("parts", "params", "message"),
    [
        ({"a": A}, {}, "input 'b' is missing"),
        ({"a": A, "c": B}, {}, "there is no input 'c'; expected a, b"),
        ({"a": A, "b": B.astype(np.float64)}, {}, r"'b': expected f32 \[any, 3\], found f64 \[2, 3\]"),
        ({"a": A, "b": B.T.copy()}, {}, r"'b': expected f32 \[any, 3\], found f32 \[3, 2\]"),
        ({"a": A, "b": B[None]}, {}, r"'b': expected f32 \[any, 3\], found f32 \[1, 2, 3\]"),
        ({"a": A, "b": B}, {"outputs": ["quotient"]}, "no output 'quotient'; expected some of sum, product"),
        ({"a": A, "b": B}, {"outputs": [7]}, "expected some of sum, product"),
        ({"a": A, "b": B}, {"outputs": "sum"}, r"params\.outputs: expected a list"),
    ],
)
def test_wrong_tensors_are_named(
    tensors: Any, parts: dict[str, Array], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        tensors.ask(*(tensors.tensor(name, array) for name, array in parts.items()), **params)


def test_a_tensor_given_twice_or_beside_a_picture_is_refused(tensors: Any, pictures: Any) -> None:
    with pytest.raises(UsageError, match="'a' was given twice"):
        tensors.ask(tensors.tensor("a", A), tensors.tensor("a", A), tensors.tensor("b", B))
    with pytest.raises(UsageError, match="'part' is no tensor; expected tensors only: a, b"):
        tensors.ask(tensors.tensor("a", A), tensors.part(pictures.quarters(), "image/jpeg"))
