"""Media types and annotation keys of modality images.

Sources: the OCI image specification 1.1; the Wasm OCI artifact layout of CNCF's TAG Runtime; CNCF's ModelPack
model-spec.
"""

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"

WASM_CONFIG = "application/vnd.wasm.config.v0+json"
WASM_MODULE = "application/wasm"

MODEL_MANIFEST = "application/vnd.cncf.model.manifest.v1+json"
MODEL_CONFIG = "application/vnd.cncf.model.config.v1+json"
MODEL_WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
MODEL_WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
MODEL_DATASET = "application/vnd.cncf.model.dataset.v1.raw"
MODEL_DOC = "application/vnd.cncf.model.doc.v1.raw"

FILEPATH = "org.cncf.model.filepath"
REF_NAME = "org.opencontainers.image.ref.name"
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
DESCRIPTION = "org.opencontainers.image.description"
LICENCES = "org.opencontainers.image.licenses"
CREATED = "org.opencontainers.image.created"

UNIT = "org.hailmesh.unit."
"""Prefix of what a node must know of a unit before it reads any of its blobs."""
ROLE = "org.hailmesh.role"
"""On a child's descriptor in the index: `code` or `model`."""
SOURCE = "org.hailmesh.source"
"""On a layer: the package that its content was made from."""

ABI = 1
UNIT_JSON = "unit.json"
