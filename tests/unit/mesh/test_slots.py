"""Waiting for a slot: in order of urgency, within the deadline, and never leaving a slot behind."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import Cancelled, DeadlineExceeded, Overloaded
from hailmesh.mesh.slots import Slots
from hailmesh.router.arbiter import Arbiter
from hailmesh.router.predictor import Predictor
from hailmesh.router.qos import Policy
from hailmesh.router.request import Request

IDS = itertools.count()


def request(asked: str = "interactive", deadline: float = 60.0) -> Request:
    terms = Policy().terms(asked, deadline)
    now = time.monotonic_ns()
    token = CancelToken(now + int(deadline * 1e9))
    return Request(
        str(next(IDS)), "unit", (), terms.qos_class, terms.budgets, "", 1.0, now, terms.level, token, 1.0
    )


def one_slot(bound: int = 8) -> Slots:
    slots = Slots(Arbiter(Predictor(), bound))
    slots.add("unit", "1", 1)
    return slots


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0)


class Holder:
    """A request that holds the slot until told to leave."""

    def __init__(self, slots: Slots, asked: Request, order: list[Request]) -> None:
        self.leave = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(slots, asked, order))

    async def _hold(self, slots: Slots, asked: Request, order: list[Request]) -> None:
        async with slots.slot(asked):
            order.append(asked)
            await self.leave.wait()


async def held(slots: Slots) -> Holder:
    order: list[Request] = []
    holder = Holder(slots, request(), order)
    await until(lambda: order)
    return holder


def test_the_more_urgent_goes_first():
    async def story() -> None:
        slots, order = one_slot(), []
        holder = await held(slots)
        batch, urgent = request("batch"), request("interactive")
        waiting = [Holder(slots, asked, order) for asked in (batch, urgent)]
        await until(lambda: slots.arbiter.waiting("unit") == 2)
        holder.leave.set()
        for entry in waiting:
            entry.leave.set()
        await asyncio.gather(holder.task, *(entry.task for entry in waiting))
        assert order == [urgent, batch]

    asyncio.run(story())


def test_one_that_waits_past_its_deadline_is_told_so():
    async def story() -> None:
        slots = one_slot()
        holder = await held(slots)
        with pytest.raises(DeadlineExceeded):
            async with slots.slot(request(deadline=0.02)):
                pass
        holder.leave.set()
        await holder.task
        assert slots.arbiter.running("unit") == 0

    asyncio.run(story())


def test_a_client_that_goes_while_its_request_waits_frees_the_place():
    async def story() -> None:
        slots = one_slot()
        holder = await held(slots)
        gone = request()
        waiting = Holder(slots, gone, [])
        await until(lambda: slots.arbiter.waiting("unit") == 1)
        gone.token.cancel()
        with pytest.raises(Cancelled):
            await waiting.task
        assert slots.arbiter.waiting("unit") == 0
        holder.leave.set()
        await holder.task

    asyncio.run(story())


@pytest.mark.parametrize("granted", [False, True])
def test_a_task_that_is_cancelled_leaves_no_slot_behind(granted):
    async def story() -> None:
        slots = one_slot()
        holder = await held(slots)
        waiting = Holder(slots, request(), [])
        await until(lambda: slots.arbiter.waiting("unit") == 1)
        if granted:
            holder.leave.set()
            await holder.task
        waiting.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting.task
        holder.leave.set()
        await holder.task
        assert slots.arbiter.waiting("unit") == slots.arbiter.running("unit") == 0

    asyncio.run(story())


def test_a_full_queue_refuses_an_equal_and_gives_way_to_a_better():
    async def story() -> None:
        slots = one_slot(bound=1)
        holder = await held(slots)
        displaced = Holder(slots, request("batch"), [])
        await until(lambda: slots.arbiter.waiting("unit") == 1)
        with pytest.raises(Overloaded):
            async with slots.slot(request("batch")):
                pass
        better = Holder(slots, request("interactive"), [])
        with pytest.raises(Overloaded):
            await displaced.task
        for entry in (holder, better):
            entry.leave.set()
        await asyncio.gather(holder.task, better.task)

    asyncio.run(story())


def test_those_that_wait_for_an_unplugged_unit_are_told_to_come_back():
    async def story() -> None:
        slots = one_slot()
        holder = await held(slots)
        waiting = Holder(slots, request(), [])
        await until(lambda: slots.arbiter.waiting("unit") == 1)
        slots.remove("unit")
        with pytest.raises(Overloaded, match="unplugged"):
            await waiting.task
        holder.leave.set()
        await holder.task

    asyncio.run(story())
