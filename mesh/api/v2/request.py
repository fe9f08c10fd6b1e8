"""An inference request: the JSON part, checked against the model before any tensor is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import UsageError
from hailmesh.mesh.api.fields import bounded, counted, optional, required
from hailmesh.mesh.api.tensors import BYTES, dtype_of
from hailmesh.mesh.api.v2.model import Model, Spec

RESERVED = frozenset({"binary_data_output", "priority", "timeout"})
MAX_RANK = 8
MAX_ELEMENTS = 1 << 31


@dataclass(frozen=True, slots=True)
class TensorIn:
    """An input as announced: `binary` bytes after the JSON, or `data` in it. dtype None is BYTES."""

    name: str
    dtype: DType | None
    shape: tuple[int, ...]
    binary: int | None
    data: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of its content; for BYTES in JSON unknown, and 0."""
        return math.prod(self.shape) * self.dtype.itemsize if self.dtype is not None else self.binary or 0


@dataclass(frozen=True, slots=True)
class TensorOut:
    """A wanted output, and whether its bytes go after the JSON."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    """`outputs` in the order of the answer; `timeout` in seconds; `lowered`: asked to go behind others;
    `options`: what is left for the unit."""

    id: str | None
    inputs: tuple[TensorIn, ...]
    outputs: tuple[TensorOut, ...]
    timeout: float | None
    lowered: bool
    options: dict[str, Any]


def parse(body: dict[str, Any], model: Model) -> InferRequest:
    """UsageError says which input or output is wrong, and what the model has."""
    parameters = optional(body, "parameters", dict) or {}
    inputs = tuple(_input(entry) for entry in required(body, "inputs", list))
    _check_names([tensor.name for tensor in inputs], model)
    for tensor in inputs:
        spec = model.input(tensor.name)
        assert spec is not None
        _check_fit(tensor, spec)
    timeout = bounded(parameters, "timeout", 1, 1e15)
    return InferRequest(
        id=optional(body, "id", str),
        inputs=inputs,
        outputs=_outputs(body, parameters, model),
        timeout=None if timeout is None else timeout / 1e6,
        lowered=(counted(parameters, "priority", 0, 1 << 32) or 0) > 1,
        options={
            name: value
            for name, value in parameters.items()
            if name not in RESERVED and not name.startswith("sequence_")
        },
    )


def raw(model: Model, size: int) -> InferRequest:
    """A request of nothing but one tensor's bytes: the model's only input says what they are."""
    if len(model.inputs) != 1:
        names = ", ".join(spec.name for spec in model.inputs)
        raise UsageError(f"a raw request is for models with one input, {model.unit} has {names}")
    (spec,) = model.inputs
    shape = spec.shape
    if spec.dtype is not None:
        free = [at for at, extent in enumerate(shape) if extent < 0]
        row = math.prod(extent for extent in shape if extent >= 0) * spec.dtype.itemsize
        if len(free) > 1 or row == 0 or size % row or (not free and size != row):
            raise UsageError(f"{spec.name}: {size} bytes don't fit {spec.datatype} {list(shape)}")
        shape = tuple(size // row if extent < 0 else extent for extent in shape)
    tensor = TensorIn(spec.name, spec.dtype, shape, size)
    outputs = tuple(TensorOut(spec.name, True) for spec in model.outputs)
    return InferRequest(None, (tensor,), outputs, None, False, {})


def _input(entry: Any) -> TensorIn:
    if not isinstance(entry, dict):
        raise UsageError("inputs: expected objects with name, datatype, shape and data")
    name = required(entry, "name", str)
    kind = required(entry, "datatype", str)
    shape = tuple(_extent(extent, name) for extent in required(entry, "shape", list))
    if len(shape) > MAX_RANK or math.prod(shape) > MAX_ELEMENTS:
        raise UsageError(f"{name}: shape {list(shape)} is too large")
    parameters = optional(entry, "parameters", dict) or {}
    if "shared_memory_region" in parameters:
        raise UsageError(f"{name}: shared memory is not supported here, send the bytes")
    binary = counted(parameters, "binary_data_size", 0, 1 << 40)
    dtype = None if kind == BYTES else dtype_of(kind, name)
    if binary is None and "data" not in entry:
        raise UsageError(f"{name}: expected data, or parameters.binary_data_size")
    if binary is not None and dtype is not None and binary != math.prod(shape) * dtype.itemsize:
        raise UsageError(
            f"{name}: {kind} {list(shape)} has {math.prod(shape) * dtype.itemsize} bytes, binary_data_size"
            f" says {binary}"
        )
    return TensorIn(name, dtype, shape, binary, entry.get("data"))


def _extent(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name}: shape: expected whole numbers of 0 or more, found {value!r}")
    return value


def _check_names(names: list[str], model: Model) -> None:
    wanted = [spec.name for spec in model.inputs]
    if sorted(names) != sorted(wanted):
        raise UsageError(
            f"model {model.unit} takes the inputs {', '.join(wanted)}; found {', '.join(names) or 'none'}"
        )


def _check_fit(tensor: TensorIn, spec: Spec) -> None:
    fits = len(tensor.shape) == len(spec.shape) and all(
        want in (-1, got) for want, got in zip(spec.shape, tensor.shape, strict=True)
    )
    if tensor.dtype != spec.dtype or not fits:
        found = Spec(tensor.name, tensor.dtype, tensor.shape)
        raise UsageError(
            f"{tensor.name}: expected {spec.datatype} {list(spec.shape)} (-1 is free), found"
            f" {found.datatype} {list(found.shape)}"
        )


def _outputs(body: dict[str, Any], parameters: dict[str, Any], model: Model) -> tuple[TensorOut, ...]:
    binary_by_default = optional(parameters, "binary_data_output", bool) or False
    asked = optional(body, "outputs", list)
    known = [spec.name for spec in model.outputs]
    if not asked:
        return tuple(TensorOut(name, binary_by_default) for name in known)
    wanted = []
    for entry in asked:
        if not isinstance(entry, dict):
            raise UsageError("outputs: expected objects with a name")
        name = required(entry, "name", str)
        if name not in known:
            raise UsageError(f"model {model.unit} has the outputs {', '.join(known)}; found '{name}'")
        own = optional(entry, "parameters", dict) or {}
        if "classification" in own or "shared_memory_region" in own:
            raise UsageError(f"{name}: classification and shared memory are not supported here")
        binary = optional(own, "binary_data", bool)
        wanted.append(TensorOut(name, binary_by_default if binary is None else binary))
    return tuple(wanted)
