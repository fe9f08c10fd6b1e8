"""The vision guest finds objects: boxes in pixels of the picture, the likeliest of those that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import UnitFault, UsageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.kernels.image_preprocess.spec import geometry
from hailmesh.sandboxes.unit import Graph

Array = npt.NDArray[Any]
WIDTH, HEIGHT = 640, 360


@pytest.fixture
def detector(bench_of: Callable[..., Any], pictures: Any) -> Callable[..., list[dict[str, Any]]]:
    """Asks with what the graph is to find: boxes [N, 4], scores [N, classes]."""
    bench = bench_of("vision", ("image_preprocess",))
    outputs = (
        TensorSpec("other", DType.F32, (-1,)),
        TensorSpec("scores", DType.F32, (1, -1, -1)),
        TensorSpec("boxes", DType.F32, (1, -1, 4)),
    )
    picture = pictures.png(pictures.noise(HEIGHT, WIDTH))

    def ask(boxes: Any, scores: Any, preprocess: dict[str, Any] | None = None, **own: Any) -> Any:
        params = own.pop("params", {})
        found = (np.zeros(1, np.float32), np.float32([scores]), np.float32([boxes]))
        graph = bench.fake_graph((TensorSpec("image", DType.F32, (1, 3, -1, -1)),), outputs, lambda _: found)
        bench.graphs = {"net": Graph("net", executor=graph)}
        bench.config = {
            "graph": "net",
            "task": "detect",
            "labels": ["cup", "car", "dog"],
            "preprocess": preprocess or {"size": [320, 320], "mode": "stretch"},
            "detect": own,
        }
        answer = bench.ask(bench.part(picture, "image/png"), **params).body
        assert (answer["width"], answer["height"]) == (WIDTH, HEIGHT)
        return answer["objects"]

    return ask


def test_boxes_come_in_pixels_with_labels_and_scores(detector: Callable[..., Any]) -> None:
    assert detector([[0.25, 0.5, 0.75, 1.0]], [[0.1, 0.875, 0.2]]) == [
        {"label": "car", "score": 0.875, "box": [160, 180, 480, 360], "index": 1}
    ]


def test_nothing_found_is_an_empty_list(detector: Callable[..., Any]) -> None:
    assert detector([[0, 0, 1, 1]], [[0.1, 0.2, 0.3]]) == []
    assert detector(np.zeros((0, 4)), np.zeros((0, 3))) == []


@pytest.mark.parametrize(
    ("form", "box"),
    [
        ("xyxy", [80, 32, 240, 160]),
        ("yxyx", [32, 80, 160, 240]),
        ("xywh", [80, 32, 160, 128]),
        ("cxcywh", [160, 96, 160, 128]),
    ],
)
def test_every_way_to_write_a_box(detector: Callable[..., Any], form: str, box: list[float]) -> None:
    expected = pytest.approx([160, 36, 480, 180], rel=1e-6)
    (found,) = detector([box], [[1, 0, 0]], box_format=form, normalized=False)
    assert found["box"] == expected
    (found,) = detector([np.array(box) / 320], [[1, 0, 0]], box_format=form)
    assert found["box"] == expected


@pytest.mark.parametrize("mode", ["letterbox", "crop"])
@pytest.mark.parametrize("size", [[320, 320], [200, 416], [417, 131]])
def test_boxes_follow_the_preprocessing(detector: Callable[..., Any], mode: str, size: list[int]) -> None:
    """A box given in the graph's input lies in the picture where image_preprocess took that from."""
    args = {"size": size, "mode": mode, "crop": 0.9}
    source, target = geometry(args, HEIGHT, WIDTH)
    inside = [target.left + 0.25 * target.width, target.top + 0.5 * target.height]
    corner = [target.left + target.width, target.top + target.height]
    (found,) = detector([inside + corner], [[1, 0, 0]], args, normalized=False)
    left, top = source.left + 0.25 * source.width, source.top + 0.5 * source.height
    expected = [left, top, source.left + source.width, source.top + source.height]
    assert found["box"] == pytest.approx(expected, abs=1e-3)


def test_boxes_end_at_the_pictures_edge(detector: Callable[..., Any]) -> None:
    (found,) = detector([[-0.5, -3, 1.5, 0.5]], [[1, 0, 0]])
    assert found["box"] == [0, 0, 640, 180]


NEAR = [[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.6, 0.6, 0.9, 0.9]]


def test_of_overlapping_boxes_of_a_label_the_likeliest_stays(detector: Callable[..., Any]) -> None:
    found = detector(NEAR, [[0.7, 0, 0], [0.8, 0, 0], [0.6, 0, 0]])
    assert [entry["score"] for entry in found] == pytest.approx([0.8, 0.6])
    found = detector(NEAR, [[0.7, 0, 0], [0.8, 0, 0], [0.6, 0, 0]], iou_threshold=0.95)
    assert [entry["score"] for entry in found] == pytest.approx([0.8, 0.7, 0.6])


def test_boxes_of_different_labels_may_overlap(detector: Callable[..., Any]) -> None:
    found = detector(NEAR, [[0.7, 0, 0], [0, 0.8, 0], [0.6, 0, 0]])
    assert [entry["label"] for entry in found] == ["car", "cup", "cup"]


def test_the_request_may_change_thresholds(detector: Callable[..., Any]) -> None:
    scores = [[0.3, 0, 0], [0.28, 0, 0], [0.2, 0, 0]]
    assert detector(NEAR, scores) == []
    params = {"score_threshold": 0.15, "iou_threshold": 1, "max_objects": 2}
    assert len(detector(NEAR, scores, params=params)) == 2
    with pytest.raises(UsageError, match=r"params\.score_threshold: expected a number from 0 to 1, found 2"):
        detector(NEAR, scores, params={"score_threshold": 2})


def test_logits_become_scores(detector: Callable[..., Any]) -> None:
    (found,) = detector([[0, 0, 1, 1]], [[-1, 2, -3]], activation="sigmoid")
    assert found["score"] == pytest.approx(1 / (1 + np.exp(-2)), rel=1e-6)
    logits = np.array([0, 0.5, 3])
    softmax = np.exp(logits) / np.exp(logits).sum()
    (found,) = detector([[0, 0, 1, 1]], [logits], activation="softmax", background=0)
    assert (found["label"], found["score"]) == ("dog", pytest.approx(softmax[2], rel=1e-6))


def test_the_background_is_no_object(detector: Callable[..., Any]) -> None:
    assert detector([[0, 0, 1, 1]], [[0.9, 0.1, 0]], background=0) == []


def test_thousands_of_candidates_are_sifted(detector: Callable[..., Any]) -> None:
    random = np.random.default_rng(5)
    corners = random.random((6000, 2)) * 0.9
    boxes = np.hstack([corners, corners + 0.01])
    scores = random.random((6000, 3)) * 0.4 + 0.55
    found = detector(boxes, scores, max_objects=50, iou_threshold=1)
    assert [entry["score"] for entry in found] == pytest.approx(
        sorted(scores.ravel(), reverse=True)[:50], rel=1e-6
    )


def test_what_is_no_number_is_no_object(detector: Callable[..., Any]) -> None:
    assert detector([[0, 0, 1, 1]], [[np.nan, np.nan, np.nan]]) == []
    (found,) = detector([[np.nan, 0, np.inf, 1]], [[1, 0, 0]])
    assert found["box"] == [0, 0, 640, 360]


def test_outputs_that_dont_go_together_are_the_units_fault(detector: Callable[..., Any]) -> None:
    with pytest.raises(UnitFault, match="8 numbers of boxes and 3 scores don't go together"):
        detector([[0, 0, 1, 1], [0, 0, 1, 1]], [[1, 0, 0]])
