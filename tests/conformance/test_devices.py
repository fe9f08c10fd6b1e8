"""What every device adapter must do. An adapter is found by its file; a probe that finds no device skips."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.buffer import DType
from hailmesh.hail.device import Device, State, discover, open_device
from hailmesh.hail.errors import Cancelled, DeviceError, OutOfArena


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(8 << 20) as arena:
        yield arena
        assert arena.count == 0


@pytest.fixture(params=discover())
def device(request: pytest.FixtureRequest, arena: Arena) -> Iterator[Device]:
    try:
        device = open_device(request.param, arena)
        device.probe()
    except DeviceError as error:
        pytest.skip(str(error))
    yield device
    device.close()


def test_a_probe_describes_the_device_and_is_remembered(
    device: Device, request: pytest.FixtureRequest
) -> None:
    info = device.probe()
    assert info.name == request.node.callspec.params["device"]
    assert info.model
    assert info.memory > 0
    assert {DType.F32, DType.U8} <= info.dtypes
    assert device.probe() is info
    assert not info.computes or (info.compute_units > 0 and info.copy_bandwidth > 0)


@pytest.mark.parametrize("dtype", list(DType))
def test_memory_is_zeroed_typed_and_given_back(device: Device, arena: Arena, dtype: DType) -> None:
    if dtype not in device.probe().dtypes:
        pytest.skip(f"the device has no {dtype.name}")
    with device.alloc(dtype, (3, 5), owner="unit") as lease:
        assert (lease.buffer.dtype, lease.buffer.shape) == (dtype, (3, 5))
        assert lease.buffer.memory is device.probe().memory_type
        assert not lease.buffer.numpy().any()
        assert arena.report().owners["unit"].used == GRANULE
    assert arena.count == 0


def test_memory_runs_out_with_an_error_of_its_own(device: Device, arena: Arena) -> None:
    with pytest.raises(OutOfArena):
        device.alloc(DType.U8, (arena.size + 1,), owner="unit")


def test_submitted_work_is_done(device: Device) -> None:
    ran: list[int] = []
    work = device.submit(lambda: ran.append(1))
    assert work.wait()
    assert device.query(work) is State.DONE
    assert ran == ([1] if device.probe().computes else [])


def test_a_query_follows_work_from_queue_to_end(device: Device) -> None:
    if not device.probe().computes:
        pytest.skip("what does no work can't be caught at it")
    running, go = threading.Event(), threading.Event()

    def hold() -> None:
        running.set()
        go.wait()

    first, second = device.submit(hold), device.submit(lambda: None)
    running.wait()
    assert (device.query(first), device.query(second)) == (State.RUNNING, State.QUEUED)
    go.set()
    assert second.wait()
    assert (device.query(first), device.query(second)) == (State.DONE, State.DONE)


def test_more_important_work_goes_first(device: Device) -> None:
    if not device.probe().computes:
        pytest.skip("what does no work has no order")
    running, go, ran = threading.Event(), threading.Event(), []

    def hold() -> None:
        running.set()
        go.wait()

    device.submit(hold)
    running.wait()
    works = [device.submit(lambda p=p: ran.append(p), priority=p) for p in (0, 2, 1, 2)]
    go.set()
    assert all(work.wait() for work in works)
    assert ran == [2, 2, 1, 0]


def test_work_that_raises_fails_alone(device: Device) -> None:
    if not device.probe().computes:
        pytest.skip("what does no work can't fail at it")
    work = device.submit(lambda: [][1])
    after = device.submit(lambda: None)
    assert after.wait()
    assert (device.query(work), device.query(after)) == (State.FAILED, State.DONE)
    with pytest.raises(DeviceError, match="IndexError"):
        work.check()


def test_a_closed_device_takes_no_work(device: Device) -> None:
    device.submit(lambda: None).wait()
    device.close()
    device.close()
    with pytest.raises(Cancelled):
        device.submit(lambda: None)
