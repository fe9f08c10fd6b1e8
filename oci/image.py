"""A modality image as the node sees it: parsed, checked, and every blob it needs known by descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hailmesh.hail.errors import ImageError, UsageError
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.index import Index, Manifest, decode
from hailmesh.oci.media import (
    ABI,
    FILEPATH,
    LICENCES,
    MODEL_CONFIG,
    MODEL_MANIFEST,
    MODEL_WEIGHT,
    OCI_INDEX,
    OCI_MANIFEST,
    ROLE,
    UNIT,
    UNIT_JSON,
    WASM_CONFIG,
    WASM_MODULE,
)
from hailmesh.oci.sections import Qos
from hailmesh.oci.store import Store
from hailmesh.oci.unit import Unit

CODE, MODEL = "code", "model"


@dataclass(frozen=True, slots=True)
class GraphBlob:
    """A graph's file, and its tokenizer if it is a sequence."""

    kind: str
    file: Descriptor
    tokenizer: Descriptor | None
    context: int
    slots: int


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """A case of the self-test; the input is a blob, or, if that is None, `text`."""

    name: str
    file: Descriptor | None
    text: str
    media_type: str
    params: Mapping[str, Any]
    expect: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class UnitImage:
    """A unit version, ready to be loaded: open the descriptors with `Store.open_verified`."""

    reference: str
    digest: str
    unit: Unit
    module: Descriptor
    graphs: Mapping[str, GraphBlob]
    selftest: tuple[GoldenCase, ...]
    weights: int
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        """The unit's name."""
        return self.unit.name

    @property
    def version(self) -> str:
        """The unit's semantic version."""
        return self.unit.version

    @property
    def modality(self) -> str:
        """What it takes: image, text, speech, …"""
        return self.unit.modality

    @property
    def qos(self) -> Qos:
        """The promise it asks for."""
        return self.unit.qos

    @property
    def slots(self) -> int:
        """Sandboxes at a time."""
        return self.unit.run.slots

    @property
    def threads(self) -> int:
        """Threads of a graph."""
        return self.unit.run.threads

    @property
    def lane(self) -> str:
        """Where its graphs run: `urgent` or `best-effort`."""
        return self.unit.run.lane

    @property
    def session_lived(self) -> bool:
        """Whether an instance lives as long as the client's stream."""
        return self.unit.lifetime == "session"

    @property
    def kernels(self) -> tuple[str, ...]:
        """The named kernels it asks to be granted."""
        return self.unit.kernels

    @property
    def arena_bytes(self) -> int:
        """Arena for all its slots together."""
        return self.unit.memory.arena

    @property
    def guest_bytes(self) -> int:
        """Linear memory of one sandbox at most."""
        return self.unit.memory.guest

    @property
    def config(self) -> dict[str, Any]:
        """The guest's configuration."""
        return dict(self.unit.config)

    @property
    def licences(self) -> str:
        """The SPDX expression of the whole image, or ''."""
        return self.annotations.get(LICENCES, "")


def unit_annotations(unit: Unit, weights: int) -> dict[str, str]:
    """What stands on the index: all that a node weighs before it reads a blob. `weights` is in bytes."""
    values: dict[str, Any] = {
        "abi": ABI,
        "name": unit.name,
        "version": unit.version,
        "modality": unit.modality,
        "lifetime": unit.lifetime,
        "qos.class": unit.qos.qos_class,
        "qos.deadline-ms": unit.qos.deadline_ms,
        "qos.penalty": f"{unit.qos.penalty:g}",
        "memory.arena": unit.memory.arena,
        "memory.guest": unit.memory.guest,
        "memory.weights": weights,
        "grants": ",".join(unit.kernels),
        "selftest": len(unit.selftests),
    }
    return {UNIT + key: str(value) for key, value in values.items()}


def load(store: Store, reference: str) -> UnitImage:
    """Resolves and checks an image. NotFound if there is none of this name; ImageError says what is damaged,
    missing, or contradicts itself. The large blobs are not read."""
    found = store.resolve(reference)
    if found.media_type != OCI_INDEX:
        raise ImageError(f"{reference} is a {found.media_type}, a modality image is an OCI image index")
    index = Index.decode(store.read(found), found.digest)
    try:
        return _load(store, reference, found, index)
    except ImageError as error:
        raise ImageError(f"image {reference} ({found.digest[:19]}…): {error}") from error


def _load(store: Store, reference: str, found: Descriptor, index: Index) -> UnitImage:
    abi = index.annotations.get(UNIT + "abi")
    if abi != str(ABI):
        raise ImageError(f"expected unit ABI {ABI}, found {abi!r}; rebuild it with this version of hailmesh")
    code = _child(store, index, CODE)
    if code.config.media_type != WASM_CONFIG or [layer.media_type for layer in code.layers] != [WASM_MODULE]:
        raise ImageError(f"the code must have a {WASM_CONFIG} configuration and one {WASM_MODULE} layer")
    model = _child(store, index, MODEL)
    if model.artifact_type != MODEL_MANIFEST or model.config.media_type != MODEL_CONFIG:
        raise ImageError(f"the model must be a {MODEL_MANIFEST} with a {MODEL_CONFIG} configuration")
    files = _files(model)
    unit = _unit(store, _file(files, UNIT_JSON))
    weights = sum(layer.size for layer in model.layers if layer.media_type == MODEL_WEIGHT)
    for key, value in unit_annotations(unit, weights).items():
        if index.annotations.get(key) != value:
            raise ImageError(
                f"annotation {key} is {index.annotations.get(key)!r}, {UNIT_JSON} says {value!r}"
            )
    graphs = {
        name: GraphBlob(
            graph.kind,
            _file(files, graph.file),
            _file(files, graph.tokenizer) if graph.tokenizer else None,
            graph.context,
            graph.slots,
        )
        for name, graph in unit.graphs.items()
    }
    selftest = tuple(
        GoldenCase(
            case.file or name,
            _file(files, case.file) if case.file else None,
            case.text,
            case.type,
            case.params,
            case.expect,
        )
        for name, case in unit.selftests.items()
    )
    return UnitImage(
        reference, found.digest, unit, code.layers[0], graphs, selftest, weights, index.annotations
    )


def _child(store: Store, index: Index, role: str) -> Manifest:
    fits = [child for child in index.manifests if child.annotations.get(ROLE) == role]
    if len(fits) != 1 or fits[0].media_type != OCI_MANIFEST:
        raise ImageError(f"expected one manifest with {ROLE}={role}, found {len(fits)}")
    return Manifest.decode(store.read(fits[0]), f"the {role} manifest {fits[0].digest}")


def _files(model: Manifest) -> dict[str, Descriptor]:
    files: dict[str, Descriptor] = {}
    for layer in model.layers:
        name = layer.annotations.get(FILEPATH, "")
        if not name or name in files:
            raise ImageError(f"layer {layer.digest} needs a {FILEPATH} of its own, found {name!r}")
        files[name] = layer
    return files


def _file(files: Mapping[str, Descriptor], name: str) -> Descriptor:
    if name not in files:
        raise ImageError(f"no layer holds {name!r}; there are {', '.join(sorted(files))}")
    return files[name]


def _unit(store: Store, layer: Descriptor) -> Unit:
    try:
        return Unit.of(decode(store.read(layer), UNIT_JSON))
    except UsageError as error:
        raise ImageError(f"{UNIT_JSON}: {error}") from error
