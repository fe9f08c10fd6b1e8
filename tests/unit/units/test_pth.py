"""PyTorch's weight files, written here by the plain pickle module with stand-ins for torch's names."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert import pth

MAGIC = 0x1950A86A20F9469CFC6C


class Storage:
    """A storage as torch's pickles name it: by a persistent id."""

    def __init__(self, kind: type, key: str, values: Any) -> None:
        self.kind, self.key, self.values = kind, key, values


class Tensor:
    def __init__(self, storage: Storage, offset: int, size: Any, stride: Any) -> None:
        self.parts = (storage, offset, size, stride, False, collections.OrderedDict())

    def __reduce__(self) -> Any:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.parts  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules that give pickled objects torch's names; there is no torch here."""
    package, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_: Any) -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    for name in ("FloatStorage", "LongStorage"):
        setattr(package, name, type(name, (), {"__module__": "torch", "__qualname__": name}))
    package._utils = utils  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", package)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return package


@pytest.fixture
def state(torch: Any) -> dict[str, Tensor]:
    numbers = Storage(torch.FloatStorage, "0", np.arange(12, dtype=np.float32))
    count = Storage(torch.LongStorage, "1", np.array([7]))
    return {
        "whole": Tensor(numbers, 0, (3, 4), (4, 1)),
        "turned": Tensor(numbers, 0, (4, 3), (1, 4)),
        "part": Tensor(numbers, 5, (2,), (3,)),
        "count": Tensor(count, 0, (), ()),
        "none": Tensor(numbers, 12, (0, 4), (4, 1)),
    }


def pickled(value: Any, found: dict[str, Storage]) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> Any:
            if not isinstance(item, Storage):
                return None
            found[item.key] = item
            return ("storage", item.kind, item.key, "cpu", len(item.values), None)

    file = io.BytesIO()
    Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def legacy(value: Any) -> bytes:
    found: dict[str, Storage] = {}
    head = b"".join(pickle.dumps(part, protocol=2) for part in (MAGIC, 1001, {"little_endian": True}))
    data = head + pickled(value, found)
    data += pickle.dumps(sorted(found), protocol=2)
    for key in sorted(found):
        data += struct.pack("<q", len(found[key].values)) + found[key].values.tobytes()
    return data


def archive(value: Any) -> bytes:
    found: dict[str, Storage] = {}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("net/data.pkl", pickled(value, found))
        for key, storage in found.items():
            zipped.writestr(f"net/data/{key}", storage.values.tobytes())
    return file.getvalue()


def load(data: bytes, tmp_path: Path) -> Any:
    path = tmp_path / "weights.pth"
    path.write_bytes(data)
    return pth.load(path)


@pytest.mark.parametrize("layout", [legacy, archive])
@pytest.mark.parametrize("wrapped", [False, True])
def test_tensors_come_back_with_their_shapes_and_strides(
    layout: Any, wrapped: bool, state: Any, tmp_path: Path
) -> None:
    loaded = load(layout({"state_dict": state} if wrapped else state), tmp_path)
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(loaded["whole"], grid)
    np.testing.assert_array_equal(loaded["turned"], grid.T)
    np.testing.assert_array_equal(loaded["part"], [5, 8])
    assert (loaded["count"].shape, loaded["count"].dtype, int(loaded["count"])) == ((), np.int64, 7)
    assert loaded["none"].shape == (0, 4)


class Run:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("layout", [legacy, archive])
def test_nothing_in_the_file_is_called(layout: Any, tmp_path: Path, state: Any) -> None:
    with pytest.raises(ImageError, match="wants to call"):
        load(layout({**state, "trap": Run(tmp_path / "touched")}), tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("layout", [legacy, archive])
@pytest.mark.parametrize(
    ("offset", "size", "stride"), [(9, (2, 2), (2, 1)), (0, (13,), (1,)), (-1, (2,), (1,))]
)
def test_a_tensor_that_reaches_past_its_storage_is_refused(
    layout: Any, torch: Any, tmp_path: Path, offset: int, size: Any, stride: Any
) -> None:
    numbers = Storage(torch.FloatStorage, "0", np.zeros(12, np.float32))
    with pytest.raises(ImageError, match="past its storage"):
        load(layout({"t": Tensor(numbers, offset, size, stride)}), tmp_path)


def test_a_legacy_file_cut_off_anywhere_is_refused(state: Any, tmp_path: Path) -> None:
    whole = legacy(state)
    for size in range(0, len(whole), 5):
        with pytest.raises(ImageError):
            load(whole[:size], tmp_path)


def test_an_archive_without_an_index_is_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("something", b"else")
    with pytest.raises(ImageError, match=r"no data\.pkl"):
        load(file.getvalue(), tmp_path)
    with pytest.raises(ImageError):
        load(file.getvalue()[:20], tmp_path)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, 7])
def test_a_pickle_of_something_else_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no plain mapping"):
        load(legacy(value), tmp_path)


def test_a_placeholder_is_read_within_its_one_element() -> None:
    """On the first pass a storage is one element that stands for all; a view by the element size would read
    memory that isn't its own."""
    memory = np.arange(64, dtype=np.float32)
    placeholder = np.broadcast_to(memory[:1].reshape(()), (32,))
    rebuilt = pth._rebuild_tensor(placeholder, 0, (4, 8), (8, 1))
    np.testing.assert_array_equal(rebuilt, np.zeros((4, 8), np.float32))
