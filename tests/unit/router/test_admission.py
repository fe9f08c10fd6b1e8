import pytest

from hailmesh.hail.errors import Overloaded
from hailmesh.router.admission import Load, Running, admit, wait
from hailmesh.router.predictor import Prediction, Predictor

SECOND = 1_000_000_000
IDLE = Load(slots=1, running=(), ahead=())


def taking(seconds: float, variance: float = 0.0) -> Prediction:
    return Prediction(seconds, variance, seconds, 10)


@pytest.fixture
def predictor() -> Predictor:
    """Requests of 1000 bytes take 20 ms."""
    predictor = Predictor()
    for _ in range(10):
        predictor.observe("vision@1", 1000, 0.02, 0)
    return predictor


def test_a_free_slot_means_no_wait():
    assert wait(Load(2, [Running(0.0, taking(9.0))], [])) == 0.0


def test_the_wait_is_residual_plus_means_plus_two_deviations_over_slots():
    load = Load(
        2, [Running(0.1, taking(0.5)), Running(0.0, taking(0.2))], [taking(0.3, 0.01), taking(0.1, 0.03)]
    )
    assert wait(load) == pytest.approx((0.4 + 0.2 + 0.3 + 0.1 + 2 * 0.2) / 2)


def test_what_has_outrun_its_prediction_still_has_a_deviation_to_go():
    assert Running(5.0, taking(1.0, 0.04)).residual == pytest.approx(0.2)


def test_a_request_that_fits_is_admitted(make, predictor):
    admit(make(deadline=0.1), "vision@1", IDLE, predictor, 0)


def test_a_request_behind_too_much_work_is_refused_with_a_time_to_come_back(make, predictor):
    load = Load(1, [Running(0.0, taking(0.02))], [taking(0.02)] * 5)
    with pytest.raises(Overloaded, match="allow more time") as refusal:
        admit(make(deadline=0.1), "vision@1", load, predictor, 0)
    assert refusal.value.predicted == pytest.approx(0.14)
    assert refusal.value.retry_after == pytest.approx(0.05)


def test_the_same_request_with_more_time_is_admitted(make, predictor):
    load = Load(1, [Running(0.0, taking(0.02))], [taking(0.02)] * 5)
    admit(make(deadline=0.2), "vision@1", load, predictor, 0)


def test_time_already_lost_before_admission_counts(make, predictor):
    with pytest.raises(Overloaded):
        admit(make(deadline=0.1), "vision@1", IDLE, predictor, int(0.09 * SECOND))


def test_a_kind_never_seen_is_admitted(make, predictor):
    admit(make(deadline=0.001, size=1e9), "vision@1", IDLE, predictor, 0)


def test_a_cold_spike_refuses_for_a_second_not_for_ever(make):
    predictor = Predictor()
    predictor.observe("vision@1", 1000, 10.0, 0)
    with pytest.raises(Overloaded):
        admit(make(deadline=0.1, at=0.5), "vision@1", IDLE, predictor, SECOND // 2)
    admit(make(deadline=0.1, at=2), "vision@1", IDLE, predictor, 2 * SECOND)
    predictor.observe("vision@1", 1000, 0.02, 2 * SECOND)
    admit(make(deadline=0.1, at=2.1), "vision@1", IDLE, predictor, int(2.1 * SECOND))


def test_no_probe_is_sent_behind_others(make):
    predictor = Predictor()
    predictor.observe("vision@1", 1000, 10.0, 0)
    busy = Load(1, [Running(0.0, taking(1.0))], [])
    with pytest.raises(Overloaded):
        admit(make(deadline=0.1, at=5), "vision@1", busy, predictor, 5 * SECOND)
