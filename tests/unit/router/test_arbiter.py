import pytest

from hailmesh.hail.errors import NotFound, Overloaded
from hailmesh.router.arbiter import Arbiter
from hailmesh.router.predictor import Predictor

SECOND = 1_000_000_000


@pytest.fixture
def predictor() -> Predictor:
    return Predictor()


@pytest.fixture
def arbiter(predictor) -> Arbiter:
    """One unit, `vision`, with one slot, and three places in its queue."""
    arbiter = Arbiter(predictor, bound=3)
    arbiter.add("vision", "1", slots=1)
    return arbiter


def drain(arbiter, now_ns=0):
    """Runs everything that waits, one after the other; the order of their ids."""
    order = []
    while granted := arbiter.grant(now_ns):
        for request in granted:
            order.append(request.id)
            arbiter.finish(request, now_ns, learn=False)
    return order


def test_grants_up_to_its_slots_and_more_as_they_finish(arbiter, make):
    first, second = make(), make()
    arbiter.submit(first, 0)
    arbiter.submit(second, 0)
    assert arbiter.grant(0) == [first]
    assert arbiter.grant(0) == []
    arbiter.finish(first, SECOND)
    assert arbiter.grant(SECOND) == [second]


def test_higher_levels_go_first_whenever_they_came(arbiter, make):
    batch, interactive, realtime = make("batch"), make("interactive"), make("realtime")
    for request in (batch, interactive, realtime):
        arbiter.submit(request, 0)
    assert drain(arbiter) == [realtime.id, interactive.id, batch.id]


def test_equals_go_by_the_earliest_due(arbiter, make):
    late, early = make("interactive", 0.45), make("interactive", 0.30)
    assert late.level == early.level
    arbiter.submit(late, 0)
    arbiter.submit(early, 0)
    assert drain(arbiter) == [early.id, late.id]


def test_of_equals_due_together_the_longer_one_starts_first(arbiter, predictor, make):
    predictor.observe("vision@1", 1000, 0.01, 0)
    predictor.observe("vision@1", 100_000, 0.2, 0)
    short, long = make(size=1000), make(size=100_000)
    arbiter.submit(short, 0)
    arbiter.submit(long, 0)
    assert drain(arbiter) == [long.id, short.id]


def test_complete_equals_go_in_order_of_arrival(arbiter, make):
    requests = [make() for _ in range(3)]
    for request in requests:
        arbiter.submit(request, 0)
    assert drain(arbiter) == [request.id for request in requests]


def test_a_full_queue_refuses_an_equal(arbiter, make):
    for _ in range(3):
        arbiter.submit(make(), 0)
    with pytest.raises(Overloaded, match="full") as refusal:
        arbiter.submit(make(), 0)
    assert refusal.value.retry_after > 0
    assert arbiter.waiting("vision") == 3


def test_a_full_queue_gives_up_its_lowest_for_a_higher_level(arbiter, make):
    low = make("batch")
    for request in (low, make(), make()):
        arbiter.submit(request, 0)
    urgent = make("realtime")
    assert arbiter.submit(urgent, 0) is low
    assert drain(arbiter)[0] == urgent.id


def test_a_request_refused_by_admission_displaces_nobody(arbiter, predictor, make):
    predictor.observe("vision@1", 1000, 5.0, 0)
    for _ in range(3):
        arbiter.submit(make("batch"), 0)
    with pytest.raises(Overloaded, match="would take"):
        arbiter.submit(make("realtime"), 0)
    assert arbiter.waiting("vision") == 3


def test_work_of_lower_levels_does_not_count_against_a_request(arbiter, predictor, make):
    predictor.observe("vision@1", 1000, 0.02, 0)
    running = make("batch")
    arbiter.submit(running, 0)
    arbiter.grant(0)
    arbiter.submit(make("batch"), 0)
    arbiter.submit(make("batch"), 0)
    arbiter.submit(make("interactive", 0.05), 0)
    with pytest.raises(Overloaded):
        arbiter.submit(make("batch", 0.05), 0)


def test_a_request_past_its_latest_start_expires_with_its_error(arbiter, predictor, make):
    predictor.observe("vision@1", 1000, 0.2, 0)
    running, waiting = make(deadline=30.0), make(deadline=0.5)
    arbiter.submit(running, 0)
    arbiter.grant(0)
    arbiter.submit(waiting, 0)
    assert arbiter.next_expiry() == int(0.3 * SECOND)
    assert arbiter.expire(int(0.29 * SECOND)) == []
    ((request, error),) = arbiter.expire(int(0.3 * SECOND))
    assert request is waiting
    assert "300 ms" in str(error)
    assert arbiter.next_expiry() is None


def test_a_cancelled_request_leaves_the_queue(arbiter, make):
    running, waiting = make(), make()
    arbiter.submit(running, 0)
    arbiter.grant(0)
    arbiter.submit(waiting, 0)
    assert arbiter.cancel(waiting.id) is waiting
    assert arbiter.waiting("vision") == 0


def test_a_running_request_cannot_be_taken_back(arbiter, make):
    running = make()
    arbiter.submit(running, 0)
    arbiter.grant(0)
    assert arbiter.cancel(running.id) is None
    assert arbiter.running("vision") == 1


def test_finish_teaches_the_predictor_how_long_it_took(arbiter, predictor, make):
    request = make()
    arbiter.submit(request, 0)
    arbiter.grant(SECOND)
    assert arbiter.finish(request, int(1.25 * SECOND)) == pytest.approx(0.25)
    assert predictor.predict("vision@1", 1000).mean == pytest.approx(0.25)


def test_a_request_that_failed_teaches_nothing(arbiter, predictor, make):
    request = make()
    arbiter.submit(request, 0)
    arbiter.grant(0)
    arbiter.finish(request, SECOND, learn=False)
    assert predictor.predict("vision@1", 1000) is None


def test_a_request_of_the_old_version_teaches_nothing_about_the_new(arbiter, predictor, make):
    request = make()
    arbiter.submit(request, 0)
    arbiter.grant(0)
    arbiter.add("vision", "2", slots=1)
    arbiter.finish(request, SECOND)
    assert predictor.predict("vision@2", 1000) is None
    assert predictor.predict("vision@1", 1000) is None


def test_units_have_queues_and_slots_of_their_own(arbiter, make):
    arbiter.add("llm", "1", slots=2)
    requests = [make(unit="llm"), make(unit="llm"), make(unit="vision")]
    for request in requests:
        arbiter.submit(request, 0)
    assert {request.id for request in arbiter.grant(0)} == {request.id for request in requests}


def test_a_removed_unit_hands_back_who_waited_and_lets_the_running_finish(arbiter, make):
    running, waiting = make(), make()
    arbiter.submit(running, 0)
    arbiter.grant(0)
    arbiter.submit(waiting, 0)
    assert arbiter.remove("vision") == [waiting]
    with pytest.raises(NotFound):
        arbiter.submit(make(), 0)
    arbiter.finish(running, SECOND)
    assert arbiter.running("vision") == 0


def test_a_unit_nobody_has_is_not_found(arbiter, make):
    with pytest.raises(NotFound, match="vision"):
        arbiter.submit(make(unit="speech"), 0)


def test_a_probe_is_granted_though_it_is_predicted_to_be_late(arbiter, predictor, make):
    predictor.observe("vision@1", 1000, 10.0, 0)
    probe = make(deadline=0.1, at=5)
    arbiter.submit(probe, 5 * SECOND)
    assert arbiter.expire(5 * SECOND) == []
    assert arbiter.grant(5 * SECOND) == [probe]
