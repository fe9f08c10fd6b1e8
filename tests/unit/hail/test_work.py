from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from hailmesh.hail.errors import Cancelled, DeviceError, UsageError
from hailmesh.hail.work import Work, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test")
    yield worker
    worker.close()


class Plug:
    """Work that keeps the worker busy until it is pulled."""

    def __init__(self, worker: Worker) -> None:
        self._pulled = threading.Event()
        running = threading.Event()

        def step() -> bool:
            running.set()
            return self._pulled.wait()

        self.work = Work(step, 0)
        worker.submit(self.work)
        running.wait()

    def pull(self) -> None:
        self._pulled.set()


def once(call: Callable[[], object]) -> Callable[[], bool]:
    def step() -> bool:
        call()
        return True

    return step


def test_work_is_done_once_its_last_step_is(worker: Worker) -> None:
    steps = iter([False, False, True])
    work = Work(lambda: next(steps), 0)
    assert not work.done()
    worker.submit(work)
    assert work.wait() and work.done()
    assert work.queued_ns <= work.started_ns <= work.finished_ns
    work.check()
    assert list(steps) == []


def test_higher_priorities_go_first_and_equals_in_order(worker: Worker) -> None:
    plug, ran = Plug(worker), []
    works = [
        Work(once(lambda name=name: ran.append(name)), priority)
        for name, priority in [("a", 0), ("b", 5), ("c", 0), ("d", 5)]
    ]
    for work in works:
        worker.submit(work)
    plug.pull()
    assert all(work.wait() for work in works)
    assert ran == ["b", "d", "a", "c"]


def test_a_long_work_yields_between_its_steps(worker: Worker) -> None:
    plug, ran = Plug(worker), []
    urgent = Work(once(lambda: ran.append("urgent")), 1)

    def step() -> bool:
        ran.append("long")
        if len(ran) == 1:
            worker.submit(urgent)
        return len(ran) == 4

    long = Work(step, 0)
    worker.submit(long)
    plug.pull()
    assert long.wait()
    assert ran == ["long", "urgent", "long", "long"]


def test_an_error_ends_the_work_not_the_worker(worker: Worker) -> None:
    broken = Work(once(lambda: 1 // 0), 0)
    refused = Work(once(lambda: (_ for _ in ()).throw(UsageError("no"))), 0)
    after = Work(once(lambda: None), 0)
    for work in (broken, refused):
        worker.submit(work)
    worker.submit(after)
    assert after.wait()
    with pytest.raises(DeviceError, match="ZeroDivisionError"):
        broken.check()
    refused.wait()
    assert refused.done()


def test_cancelling_ends_it_before_its_next_step(worker: Worker) -> None:
    plug = Plug(worker)
    work = Work(once(lambda: pytest.fail("it ran")), 0)
    worker.submit(work)
    work.cancel()
    assert not work.done()
    plug.pull()
    work.wait()
    with pytest.raises(Cancelled):
        work.check()


def test_closing_finishes_the_step_and_cancels_what_is_queued() -> None:
    worker = Worker("test")
    plug = Plug(worker)
    queued = Work(once(lambda: None), 0)
    worker.submit(queued)
    closing = threading.Thread(target=worker.close)
    closing.start()
    plug.pull()
    closing.join()
    plug.work.check()
    assert queued.done()
    with pytest.raises(Cancelled):
        queued.check()
    with pytest.raises(Cancelled):
        worker.submit(Work(lambda: True, 0))
    worker.close()


def test_closing_cancels_what_is_between_two_steps() -> None:
    worker = Worker("test")
    stepped = threading.Event()

    def step() -> bool:
        stepped.set()
        return False

    endless = Work(step, 0)
    worker.submit(endless)
    stepped.wait()
    worker.close()
    assert endless.done()
    with pytest.raises(Cancelled):
        endless.check()


def test_waiting_can_be_bounded(worker: Worker) -> None:
    plug = Plug(worker)
    assert not plug.work.wait(0.001)
    plug.pull()
    assert plug.work.wait()
