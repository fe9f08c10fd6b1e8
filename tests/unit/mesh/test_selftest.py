"""Golden cases are judged by value, and a case that expects nothing is refused."""

import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.mesh.selftest import judge, word_error_rate

ANSWER = {"labels": [{"label": "espresso", "score": 0.95}], "text": "Fail again. Fail better."}


@pytest.mark.parametrize(
    "expectation",
    [
        {"path": "labels.0.label", "equals": "espresso"},
        {"path": "labels.0.score", "near": 0.94, "within": 0.02},
        {"path": "text", "contains": "fail BETTER"},
        {"path": "text", "words": "fail again fail better"},
        {"path": "text", "words": "fail again fail bitter", "errors": 0.25},
    ],
)
def test_an_answer_that_meets_the_expectation_passes(expectation):
    assert judge(ANSWER, [expectation]).passed


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        ({"path": "labels.0.label", "equals": "latte"}, "expected 'latte', found 'espresso'"),
        ({"path": "labels.0.score", "near": 0.9, "within": 0.02}, "expected 0.9 ± 0.02, found 0.95"),
        ({"path": "text", "contains": "succeed"}, "expected 'succeed' in"),
        ({"path": "text", "words": "fail again fail bitter"}, "25% wrong words"),
        ({"path": "labels.3.label", "equals": "x"}, "no labels.3.label"),
        ({"path": "objects", "equals": []}, "no objects"),
    ],
)
def test_an_answer_that_misses_it_fails_with_the_reason(expectation, reason):
    verdict = judge(ANSWER, [expectation])
    assert not verdict.passed
    assert reason in verdict.reason


def test_every_expectation_must_hold():
    good, bad = {"path": "text", "contains": "fail"}, {"path": "text", "contains": "succeed"}
    assert not judge(ANSWER, [good, bad]).passed


@pytest.mark.parametrize("expectations", [[], [{"path": "text"}]])
def test_a_case_that_expects_nothing_is_refused(expectations):
    with pytest.raises(ImageError):
        judge(ANSWER, expectations)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "rate"),
    [
        ("a b c d", "A, b; c. d!", 0.0),
        ("a b c d", "a x c d", 0.25),
        ("a b c d", "a c d", 0.25),
        ("a b c d", "a b y c d", 0.25),
        ("a b", "", 1.0),
        ("", "", 0.0),
    ],
)
def test_word_error_rate_counts_substitutions_deletions_and_insertions(reference, hypothesis, rate):
    assert word_error_rate(reference, hypothesis) == rate
