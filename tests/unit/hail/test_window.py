from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from hailmesh.hail.arena import GRANULE, Arena, Lease
from hailmesh.hail.errors import NotFound, UsageError
from hailmesh.hail.slab import Slab
from hailmesh.hail.window import Windows, map_window, restore


@dataclass
class Guest:
    """Stands for a linear memory: anonymous, aligned, full of the guest's own bytes."""

    base: int
    size: int
    memory: npt.NDArray[np.uint8]


@pytest.fixture
def guest() -> Iterator[Guest]:
    size = 8 * GRANULE
    backing = mmap.mmap(-1, size + GRANULE, mmap.MAP_PRIVATE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(backing))
    base = -(-start // GRANULE) * GRANULE
    memory = np.ndarray((size,), np.uint8, buffer=(ctypes.c_uint8 * size).from_address(base))
    memory[:] = 0xEE
    yield Guest(base, size, memory)
    restore(base, size)
    backing.close()


@pytest.fixture
def windows(arena: Arena, guest: Guest) -> Iterator[Windows]:
    windows = Windows(arena.fd, base=guest.base, limit=lambda: guest.size)
    yield windows
    windows.restore_all()


@pytest.fixture
def lease(arena: Arena) -> Iterator[Lease]:
    with arena.lease(2 * GRANULE, owner="a") as lease:
        lease.buffer.numpy()[:] = 7
        yield lease


def test_a_read_window_shows_the_arena(windows: Windows, guest: Guest, lease: Lease) -> None:
    windows.map(lease.buffer, guest.base + GRANULE, write=False)
    assert (guest.memory[GRANULE : 3 * GRANULE] == 7).all()
    assert guest.memory[GRANULE - 1] == guest.memory[3 * GRANULE] == 0xEE


def test_writes_to_a_read_window_are_the_guests_alone(windows: Windows, guest: Guest, lease: Lease) -> None:
    windows.map(lease.buffer, guest.base, write=False)
    ctypes.memset(guest.base, 1, 2 * GRANULE)
    assert (guest.memory[: 2 * GRANULE] == 1).all()
    assert (lease.buffer.numpy() == 7).all()


def test_writes_to_a_write_window_are_everybodys(windows: Windows, guest: Guest, lease: Lease) -> None:
    windows.map(lease.buffer, guest.base, write=True)
    guest.memory[5] = 1
    assert lease.buffer.numpy()[5] == 1
    lease.buffer.numpy()[6] = 2
    assert guest.memory[6] == 2


def test_unmapping_gives_zero_pages_back(windows: Windows, guest: Guest, lease: Lease) -> None:
    for write in (False, True):
        windows.map(lease.buffer, guest.base, write=write)
        windows.unmap(guest.base)
        assert not guest.memory[: 2 * GRANULE].any()
        guest.memory[: 2 * GRANULE] = 9
        assert (lease.buffer.numpy() == 7).all(), "the arena is out of reach"
    assert len(windows) == 0


def test_restore_all_leaves_no_window(windows: Windows, guest: Guest, lease: Lease) -> None:
    windows.map(lease.buffer, guest.base, write=True)
    windows.map(lease.buffer, guest.base + 4 * GRANULE, write=False)
    windows.restore_all()
    windows.restore_all()
    assert not guest.memory[: 2 * GRANULE].any()
    assert not guest.memory[4 * GRANULE : 6 * GRANULE].any()
    guest.memory[:] = 3
    assert (lease.buffer.numpy() == 7).all()
    assert len(windows) == 0


def test_a_window_has_whole_granules_and_its_tail_is_zero(
    arena: Arena, windows: Windows, guest: Guest
) -> None:
    with arena.lease(10, owner="a") as small:
        small.buffer.numpy()[:] = 7
        windows.map(small.buffer, guest.base, write=False)
        assert (guest.memory[:10] == 7).all()
        assert not guest.memory[10:GRANULE].any()
        windows.restore_all()


@pytest.mark.parametrize("write", [False, True])
def test_misaligned_windows_are_refused(windows: Windows, guest: Guest, lease: Lease, write: bool) -> None:
    with pytest.raises(UsageError, match="alignment"):
        windows.map(lease.buffer, guest.base + 4096, write=write)
    assert (guest.memory == 0xEE).all()


def test_a_window_must_lie_in_the_linear_memory(windows: Windows, guest: Guest, lease: Lease) -> None:
    for address in (guest.base - GRANULE, guest.base + 7 * GRANULE, guest.base + 8 * GRANULE):
        with pytest.raises(UsageError, match="leaves the guest's memory"):
            windows.map(lease.buffer, address, write=False)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_overlapping_windows_are_refused(windows: Windows, guest: Guest, lease: Lease, at: int) -> None:
    windows.map(lease.buffer, guest.base + 2 * GRANULE, write=False)
    with pytest.raises(UsageError, match="overlaps"):
        windows.map(lease.buffer, guest.base + at * GRANULE, write=True)
    assert len(windows) == 1


def test_a_block_smaller_than_a_granule_is_never_mapped(arena: Arena, windows: Windows, guest: Guest) -> None:
    slab = Slab(arena, 640, owner="asr")
    with slab.lease() as frame:
        assert frame.buffer.offset % GRANULE == 0, "the first of a run: only the mark tells"
        with pytest.raises(UsageError, match="neighbours"):
            windows.map(frame.buffer, guest.base, write=False)
    slab.close()


def test_unmapping_what_is_no_window_is_an_error(windows: Windows, guest: Guest) -> None:
    with pytest.raises(NotFound):
        windows.unmap(guest.base)
    assert (guest.memory == 0xEE).all()


def test_find_tells_which_window_holds_a_range(windows: Windows, guest: Guest, lease: Lease) -> None:
    windows.map(lease.buffer, guest.base + GRANULE, write=True)
    window = windows.find(guest.base + GRANULE + 5, 100)
    assert window is not None
    assert (window.offset, window.write) == (lease.buffer.offset, True)
    assert windows.find(guest.base + 3 * GRANULE - 1, 2) is None
    assert windows.find(guest.base, 1) is None


def test_what_the_kernel_refuses_is_an_oserror(arena: Arena, guest: Guest) -> None:
    with pytest.raises(OSError, match="mmap of 65536 bytes"):
        map_window(arena.fd, 1, guest.base, GRANULE, write=True)
    with pytest.raises(OSError, match="mmap of 65536 bytes"):
        map_window(-1, 0, guest.base, GRANULE, write=False)
