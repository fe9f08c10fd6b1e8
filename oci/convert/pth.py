"""Reads the weights of a PyTorch `.pth` file without torch, and without running what the file says.

Both layouts are a pickle that rebuilds tensors from storages. The unpickler here knows an ordered dict, the
storage types and the function that views a storage as a tensor; any other name in the pickle is refused.
Source of the layouts: torch/serialization.py (`_legacy_load`, `_load`).
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.quant import Array

_STORAGES = {
    "FloatStorage": np.float32, "HalfStorage": np.float16, "DoubleStorage": np.float64,
    "LongStorage": np.int64, "IntStorage": np.int32, "CharStorage": np.int8, "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}  # fmt: skip

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class _Storage:
    """Stands for a storage class in the pickle; its elements' dtype is all we need of it."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype(_STORAGES[name])


def _rebuild_tensor(
    storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> Array:
    """A copy of the strided view; ImageError if it reaches past its storage."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if min((offset, *size, *stride)) < 0 or (0 not in size and last >= storage.size):
        raise ImageError("a tensor in the .pth file reaches past its storage")
    # By the storage's own stride: that of a placeholder is 0, all its elements are one.
    steps = [step * storage.strides[0] for step in stride]
    view: Array = np.lib.stride_tricks.as_strided(storage[offset:], size, steps)
    copy: Array = view.copy()
    return copy


def _rebuild_parameter(data: Array, *_: Any) -> Array:
    return data


_FUNCTIONS = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, storage: Callable[[Any], Array]) -> None:
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _FUNCTIONS:
            return _FUNCTIONS[module, name]
        if module == "torch" and name in _STORAGES:
            return _Storage(name)
        raise ImageError(f"the .pth file wants to call {module}.{name}, which weights have no need of")

    def persistent_load(self, pid: Any) -> Array:
        return self._storage(pid)


def _refuse(pid: Any) -> Array:
    raise ImageError("the .pth file has a storage in its head")


def _load_zip(data: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        index = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if index is None:
            raise ImageError("the .pth archive has no data.pkl")
        folder = index.removesuffix("data.pkl") + "data/"

        def storage(pid: Any) -> Array:
            _, kind, key, *_ = pid
            return np.frombuffer(archive.read(folder + key), kind.dtype)

        return _Unpickler(io.BytesIO(archive.read(index)), storage).load()


def _load_legacy(data: bytes) -> Any:
    """Pickles of magic, protocol, system, the object and the storages' keys, then the storages themselves.

    The object comes before its storages, and tensors copy when they are rebuilt: so it is read twice, first
    to learn each storage's type and size, then with the content in place.
    """
    file = io.BytesIO(data)
    if _Unpickler(file, _refuse).load() != _LEGACY_MAGIC:
        raise ImageError("the .pth file is neither a zip archive nor torch's older format")
    for _ in range(2):
        _Unpickler(file, _refuse).load()
    start = file.tell()
    found: dict[str, Array] = {}

    def placeholder(pid: Any) -> Array:
        _, kind, key, _, size, *_ = pid
        return found.setdefault(key, np.broadcast_to(np.zeros((), kind.dtype), (size,)))

    _Unpickler(file, placeholder).load()
    for key in _Unpickler(file, _refuse).load():
        count = int.from_bytes(file.read(8), "little")
        content = file.read(count * found[key].itemsize)
        if count != found[key].size or len(content) != count * found[key].itemsize:
            raise ImageError(f"storage {key} of the .pth file is cut off")
        found[key] = np.frombuffer(content, found[key].dtype)
    file.seek(start)
    return _Unpickler(file, lambda pid: found[pid[2]]).load()


def load(path: Path) -> Mapping[str, Array]:
    """The tensors by name. ImageError if the file is malformed or asks for more than tensors."""
    data = path.read_bytes()
    try:
        loaded = _load_zip(data) if data[:2] == b"PK" else _load_legacy(data)
    except ImageError:
        raise
    except Exception as error:  # a malformed pickle or archive may fail in any way
        raise ImageError(f"{path.name} is no readable .pth file: {error}") from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(state, dict) or not all(isinstance(value, np.ndarray) for value in state.values()):
        raise ImageError(f"{path.name} holds no plain mapping of names to tensors")
    return state
