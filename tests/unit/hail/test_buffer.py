from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hailmesh.hail.buffer import Buffer, DType


@pytest.fixture
def memory() -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * 64)(*range(64))


def buffer(memory: ctypes.Array[ctypes.c_uint8], nbytes: int, dtype: DType, shape: tuple[int, ...]) -> Buffer:
    return Buffer(0, ctypes.addressof(memory), nbytes, dtype, shape)


@pytest.mark.parametrize("dtype", list(DType))
def test_every_dtype_is_numpys_and_back(dtype: DType) -> None:
    assert DType.of(dtype.numpy) is dtype
    assert dtype.itemsize == dtype.numpy.itemsize


def test_the_first_six_are_numbered_as_in_wasi_nn() -> None:
    assert [DType(n).numpy.str for n in range(6)] == ["<f2", "<f4", "<f8", "|u1", "<i4", "<i8"]


def test_a_dtype_we_have_not_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        DType.of(np.complex64)


def test_numpy_is_a_view(memory: ctypes.Array[ctypes.c_uint8]) -> None:
    view = buffer(memory, 8, DType.U8, (2, 4)).numpy()
    assert view.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    view[1, 3] = 99
    assert memory[7] == 99


def test_a_view_of_nothing_has_its_shape(memory: ctypes.Array[ctypes.c_uint8]) -> None:
    assert buffer(memory, 0, DType.F32, (3, 0)).numpy().shape == (3, 0)


def test_a_scalar_has_no_dimensions(memory: ctypes.Array[ctypes.c_uint8]) -> None:
    assert buffer(memory, 4, DType.I32, ()).numpy()[()] == 0x03020100


def test_typed_shrinks_but_never_grows(memory: ctypes.Array[ctypes.c_uint8]) -> None:
    words = buffer(memory, 16, DType.U8, (16,)).typed(DType.U16, (2, 3))
    assert (words.nbytes, words.numpy().tolist()) == (
        12,
        [[0x0100, 0x0302, 0x0504], [0x0706, 0x0908, 0x0B0A]],
    )
    with pytest.raises(ValueError, match="needs 16 bytes, the buffer has 12"):
        words.typed(DType.F64, (2,))
