import pytest

from hailmesh.router.predictor import Predictor, octave

SECOND = 1_000_000_000


def fed(*samples, size=1000.0):
    predictor = Predictor()
    for at, seconds in enumerate(samples):
        predictor.observe("u@1", size, seconds, at * SECOND)
    return predictor


def test_nothing_seen_is_no_prediction():
    assert Predictor().predict("u@1", 10) is None


def test_mean_and_variance_of_a_steady_service_are_exact():
    prediction = fed(*[0.02] * 10).predict("u@1", 1000)
    assert prediction.mean == pytest.approx(0.02)
    assert prediction.variance == pytest.approx(0.0)
    assert prediction.q95 == pytest.approx(0.02)


def test_mean_and_variance_of_the_first_samples_are_the_plain_ones():
    prediction = fed(1.0, 2.0, 3.0, 4.0).predict("u@1", 1000)
    assert prediction.mean == pytest.approx(2.5)
    assert prediction.variance == pytest.approx(1.25)


def test_the_mean_follows_a_service_that_became_slower():
    predictor = fed(*[0.01] * 50, *[0.1] * 50)
    assert predictor.predict("u@1", 1000).mean == pytest.approx(0.1, rel=0.02)


def test_q95_is_the_nineteenth_of_twenty():
    assert fed(*[n / 100 for n in range(1, 21)]).predict("u@1", 1000).q95 == pytest.approx(0.19)


def test_inputs_of_other_sizes_are_predicted_apart():
    predictor = fed(0.01, size=1000)
    assert predictor.predict("u@1", 1023) is not None
    assert predictor.predict("u@1", 5000) is None


@pytest.mark.parametrize(("size", "bucket"), [(0, 0), (0.3, 0), (1, 0), (2, 1), (1023, 9), (1024, 10)])
def test_octaves(size, bucket):
    assert octave(size) == bucket


def test_versions_are_predicted_apart_and_forgotten_alone():
    predictor = fed(0.01)
    predictor.observe("u@2", 1000, 0.5, 0)
    predictor.forget("u@1")
    assert predictor.predict("u@1", 1000) is None
    assert predictor.predict("u@2", 1000).mean == 0.5


def test_a_probe_is_due_only_after_a_time_without_samples_and_once():
    predictor = fed(10.0)
    assert not predictor.probe("u@1", 1000, SECOND // 2)
    assert predictor.probe("u@1", 1000, 2 * SECOND)
    assert not predictor.probe("u@1", 1000, 2 * SECOND)


def test_a_probe_that_was_fast_replaces_the_history():
    predictor = fed(*[10.0] * 30)
    assert predictor.probe("u@1", 1000, 60 * SECOND)
    predictor.observe("u@1", 1000, 0.015, 61 * SECOND)
    prediction = predictor.predict("u@1", 1000)
    assert (prediction.mean, prediction.q95, prediction.samples) == (0.015, 0.015, 1)
    assert prediction.variance == 0.0


def test_probes_become_rarer_while_they_confirm_the_prediction():
    predictor = fed(10.0)
    assert predictor.probe("u@1", 1000, 2 * SECOND)
    predictor.observe("u@1", 1000, 9.0, 12 * SECOND)
    assert not predictor.probe("u@1", 1000, int(13.5 * SECOND))
    assert predictor.probe_in("u@1", 1000, 13 * SECOND) == pytest.approx(1.0)
    assert predictor.probe("u@1", 1000, 14 * SECOND)
