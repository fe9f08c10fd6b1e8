from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert import gguf
from hailmesh.oci.convert.quant import BLOCK

WriteGguf = Callable[..., Path]


def test_metadata_of_every_type_is_read(write_gguf: WriteGguf) -> None:
    told = {
        "u8": (0, 200), "i8": (1, -100), "u16": (2, 60_000), "i16": (3, -30_000), "u32": (4, 4_000_000_000),
        "i32": (5, -2_000_000_000), "f32": (6, 0.5), "bool": (7, True), "text": (8, "Grüße"),
        "texts": (9, (8, ["a", "bc", ""])), "numbers": (9, (5, [3, -1, 2])), "u64": (10, 1 << 60),
        "i64": (11, -(1 << 60)), "f64": (12, 0.1),
    }  # fmt: skip
    read = gguf.load(write_gguf(told, {})).metadata
    assert list(read["numbers"]) == [3, -1, 2]
    assert read["texts"] == ["a", "bc", ""]
    for key in set(told) - {"numbers", "texts"}:
        assert read[key] == told[key][1], key


def test_tensors_of_each_kind_give_their_exact_values(write_gguf: WriteGguf) -> None:
    rng = np.random.default_rng(1)
    q = rng.integers(0, 16, (3, 2, BLOCK), np.uint8)
    d, m = (rng.standard_normal((3, 2)).astype(np.float16) for _ in "dm")
    signed = rng.integers(-127, 128, (3, 2, BLOCK)).astype(np.int8)
    plain = rng.standard_normal((4, 5)).astype(np.float32)
    tensors = {
        "q4_1": ("Q4_1", (3, 64), (q, d, m)),
        "q8_0": ("Q8_0", (3, 64), (signed, d)),
        "f32": ("F32", (4, 5), plain),
        "f16": ("F16", (4, 5), plain.astype(np.float16)),
    }
    model = gguf.load(write_gguf({}, tensors))
    values = {name: model.tensor(name).float32() for name in tensors}
    wide = [part.astype(np.float32)[..., None] for part in (d, m)]
    np.testing.assert_array_equal(values["q4_1"], (q * wide[0] + wide[1]).reshape(3, 64))
    np.testing.assert_array_equal(values["q8_0"], (signed * wide[0]).reshape(3, 64))
    np.testing.assert_array_equal(values["f32"], plain)
    np.testing.assert_array_equal(values["f16"], plain.astype(np.float16))
    assert {value.dtype for value in values.values()} == {np.dtype(np.float32)}


def test_a_missing_tensor_or_key_is_named(write_gguf: WriteGguf) -> None:
    model = gguf.load(write_gguf({}, {}))
    with pytest.raises(ImageError, match="no tensor 'head'"):
        model.tensor("head")
    with pytest.raises(ImageError, match=r"no metadata 'llama\.block_count'"):
        model["llama.block_count"]


def test_a_tensor_of_the_wrong_kind_is_named(write_gguf: WriteGguf) -> None:
    model = gguf.load(write_gguf({}, {"head": ("F32", (1, 32), np.zeros((1, 32), np.float32))}))
    with pytest.raises(ImageError, match="head is stored as F32, this conversion needs Q4_1"):
        model.tensor("head").q4_1()


@pytest.mark.parametrize("data", [b"GGUF", b"ONNX" + bytes(60), b"GGUF" + struct.pack("<IQQ", 9, 0, 0)])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ImageError, match="GGUF file"):
        gguf.load(path)


def test_a_file_cut_off_anywhere_is_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    tensors = {"w": ("F32", (2, 32), np.zeros((2, 32), np.float32))}
    whole = write_gguf({"text": (8, "Grüße"), "n": (9, (4, [1, 2]))}, tensors).read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(4, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ImageError, match="were promised"):
            gguf.load(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (struct.pack("<Q1sI", 1, b"n", 4), struct.pack("<Q1sI", 1, b"n", 99), "unknown type 99"),
        (struct.pack("<Q4sI", 4, b"text", 8), struct.pack("<Q4sI", 1 << 60, b"text", 8), "were promised"),
    ],
)
def test_a_head_that_makes_no_sense_is_refused(
    write_gguf: WriteGguf, old: bytes, new: bytes, says: str
) -> None:
    path = write_gguf({"text": (8, "x"), "n": (4, 1)}, {})
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with pytest.raises(ImageError, match=says):
        gguf.load(path)


def test_an_unknown_kind_of_tensor_is_named(write_gguf: WriteGguf) -> None:
    path = write_gguf({}, {"w": ("F32", (1, 32), np.zeros((1, 32), np.float32))})
    data = path.read_bytes()
    head = struct.pack("<Q1sIQQI", 1, b"w", 2, 32, 1, 0)
    assert head in data
    path.write_bytes(data.replace(head, struct.pack("<Q1sIQQI", 1, b"w", 2, 32, 1, 77)))
    with pytest.raises(ImageError, match=r"w in .* has ggml type 77"):
        gguf.load(path)
