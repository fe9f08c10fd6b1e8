"""From a unit.toml to a modality image in the store.

The image is an OCI index of two manifests: the code, a Wasm artifact, and the model, a CNCF ModelPack with
one raw layer per file. The same input gives the same digest: nothing in it depends on time (unless
SOURCE_DATE_EPOCH is set), machine or file order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path

from hailmesh.hail.errors import UsageError
from hailmesh.oci.descriptor import Descriptor, Platform
from hailmesh.oci.image import CODE, MODEL, unit_annotations
from hailmesh.oci.index import Index, Manifest, encode
from hailmesh.oci.media import (
    CREATED,
    DESCRIPTION,
    FILEPATH,
    LICENCES,
    MODEL_CONFIG,
    MODEL_DATASET,
    MODEL_DOC,
    MODEL_MANIFEST,
    MODEL_WEIGHT,
    MODEL_WEIGHT_CONFIG,
    ROLE,
    SOURCE,
    TITLE,
    UNIT_JSON,
    VERSION,
    WASM_CONFIG,
    WASM_MODULE,
)
from hailmesh.oci.reference import LATEST
from hailmesh.oci.store import Store
from hailmesh.oci.unit import GENERIC_GUESTS, MODULE, Unit

NOTICES = "third-party.txt"
_MAGIC = b"\0asm\x01\0\0\0"


def build(unit_toml: Path, store: Store, *, guests: Callable[[str], Path]) -> Descriptor:
    """Builds the image and names it NAME:VERSION and NAME:latest.

    `guests` finds a generic guest's module; a file third-party.txt beside it, the notices of what the module
    was built from, goes along.

    UsageError names the key or file of unit.toml that is wrong.
    """
    unit = Unit.load(unit_toml)
    folder = unit_toml.parent
    module = guests(unit.guest) if unit.guest in GENERIC_GUESTS else folder / unit.guest
    _check_module(unit, module)
    created = _created()
    with store.writing():
        layers = _layers(unit, folder, store)
        notices = module.with_name(NOTICES)
        if unit.guest in GENERIC_GUESTS and notices.exists():
            layers.append(store.put(notices, MODEL_DOC, {FILEPATH: NOTICES}))
        weights = sum(layer.size for layer in layers if layer.media_type == MODEL_WEIGHT)
        described = {
            TITLE: unit.name,
            VERSION: unit.version,
            DESCRIPTION: unit.description,
            LICENCES: _all_of(unit.licences),
            CREATED: created,
        }
        children = (_code(unit, module, store, created), _model(unit, layers, store, created))
        annotations = unit_annotations(unit, weights)
        annotations.update((key, value) for key, value in described.items() if value)
        image = store.put_manifest(Index(children, annotations))
        for tag in (unit.version.replace("+", "_"), LATEST):
            store.tag(f"{unit.name}:{tag}", image)
    return image


def _created() -> str:
    """SOURCE_DATE_EPOCH as RFC 3339, or '' (see reproducible-builds.org)."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return ""
    try:
        moment = datetime.fromtimestamp(int(given), timezone.utc)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH: expected seconds since 1970, found {given!r}") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _all_of(licences: Iterable[str]) -> str:
    """One SPDX expression that asks for all of them."""
    distinct = list(dict.fromkeys(licences))
    if len(distinct) < 2:
        return "".join(distinct)
    return " AND ".join(f"({licence})" if " OR " in licence else licence for licence in distinct)


def _check_module(unit: Unit, module: Path) -> None:
    try:
        with module.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        known = ", ".join(GENERIC_GUESTS)
        raise UsageError(
            f"unit.guest: {module}: {error.strerror}; expected {known} or the path of a .wasm"
        ) from error
    if magic != _MAGIC:
        raise UsageError(f"unit.guest: {module} is no core WebAssembly module")


def _layers(unit: Unit, folder: Path, store: Store) -> list[Descriptor]:
    """The model's layers: weights, tokenizers, unit.json, licences."""
    names = (*unit.files(), UNIT_JSON, NOTICES, *unit.golden_files(), *unit.licence_files)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name!r} is named for two different things in unit.toml")
    graphs = {graph.file for graph in unit.graphs.values()}
    layers = []
    for name in unit.files():
        kind = MODEL_WEIGHT if name in graphs else MODEL_WEIGHT_CONFIG
        layers.append(_layer(store, folder, name, kind, _origin(unit, name)))
    document = encode(unit.document())
    origin = _origin(unit, unit.config_file)
    layers.append(store.put(document, MODEL_WEIGHT_CONFIG, {FILEPATH: UNIT_JSON, **origin}))
    for name in unit.golden_files():
        layers.append(_layer(store, folder, name, MODEL_DATASET, _origin(unit, name)))
    for name in unit.licence_files:
        layers.append(_layer(store, folder, name, MODEL_DOC, {}))
    return layers


def _layer(store: Store, folder: Path, name: str, kind: str, origin: dict[str, str]) -> Descriptor:
    try:
        return store.put(folder / name, kind, {FILEPATH: name, **origin})
    except OSError as error:
        raise UsageError(f"{folder / name}: {error.strerror}; unit.toml names it") from error


def _origin(unit: Unit, name: str) -> dict[str, str]:
    source = unit.sources.get(name)
    return {LICENCES: source.licence, SOURCE: source.package} if source else {}


def _code(unit: Unit, module: Path, store: Store, created: str) -> Descriptor:
    """The module as a Wasm OCI artifact. Its configuration always has a time: readers insist on one."""
    origin = _origin(unit, MODULE)
    layer = store.put(module, WASM_MODULE, origin)
    config = {
        "created": created or "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip1",
        "layerDigests": [layer.digest],
    }
    manifest = Manifest(store.put(encode(config), WASM_CONFIG), [layer], annotations=origin)
    return _child(store.put_manifest(manifest), CODE, origin, Platform("wasm", "wasip1"))


def _model(unit: Unit, layers: list[Descriptor], store: Store, created: str) -> Descriptor:
    """The files as a CNCF ModelPack."""
    named = (*unit.files(), *unit.golden_files(), unit.config_file)
    origins = (unit.sources[name] for name in named if name in unit.sources)
    licences = list(dict.fromkeys(source.licence for source in origins))
    described = {
        "createdAt": created,
        "name": unit.name,
        "version": unit.version,
        "description": unit.description,
        "licenses": licences,
    }
    config = {
        "descriptor": {key: value for key, value in described.items() if value},
        "config": {"format": "onnx"},
        "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
    }
    licence = {LICENCES: _all_of(licences)} if licences else {}
    manifest = Manifest(store.put(encode(config), MODEL_CONFIG), layers, MODEL_MANIFEST, licence)
    return _child(store.put_manifest(manifest), MODEL, licence, Platform())


def _child(manifest: Descriptor, role: str, annotations: dict[str, str], platform: Platform) -> Descriptor:
    return Descriptor(
        manifest.media_type, manifest.digest, manifest.size, {ROLE: role, **annotations}, platform
    )
