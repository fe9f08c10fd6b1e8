import pytest

from hailmesh.hail.arena import Arena
from hailmesh.router.request import Input


def test_deadlines_count_from_arrival(make):
    request = make("interactive", at=2.0)
    assert request.first_due_ns == 2_500_000_000
    assert request.deadline_ns == 62_000_000_000


def test_leases_return_with_the_last_holder(make):
    with Arena.create(1 << 20) as arena:
        request = make()
        request.inputs = (Input("image", "image/png", arena.lease(10, owner="request"), 10),)
        request.retain()
        request.release()
        assert arena.count == 1
        request.release()
        assert arena.count == 0


def test_inputs_that_were_returned_cannot_be_retained(make):
    request = make()
    request.release()
    with pytest.raises(RuntimeError, match="returned"):
        request.retain()


def test_growth_of_a_streamed_input_reaches_the_listener_with_what_came_before_it():
    with Arena.create(1 << 20) as arena, arena.lease(100, owner="request") as lease:
        part = Input("speech", "audio/wav", lease, 0, streamed=True, ended=False)
        part.grow(10)
        heard = []
        part.on_growth(lambda size, ended: heard.append((size, ended)))
        part.grow(60)
        part.grow(80, ended=True)
        assert heard == [(10, False), (60, False), (80, True)]
        assert (part.size, part.ended, part.room) == (80, True, 100)
