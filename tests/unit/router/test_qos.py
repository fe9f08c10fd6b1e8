import pytest

from hailmesh.hail.errors import UsageError
from hailmesh.router.qos import CLASSES, LEVEL_OFFSET, Policy, level, priority


def test_priority_is_the_inverse_of_the_deadline_times_the_penalty():
    assert priority(500_000) == 2.0
    assert priority(500_000, penalty=3.0) == 6.0


@pytest.mark.parametrize(
    ("deadline_us", "penalty", "expected"),
    [
        (1_000_000, 1.0, LEVEL_OFFSET),
        (500_000, 1.0, LEVEL_OFFSET + 1),
        (33_000, 1.0, LEVEL_OFFSET + 4),
        (30_000_000, 1.0, LEVEL_OFFSET - 5),
        (500_000, 4.0, LEVEL_OFFSET + 3),
        (1, 1.0, 31),
        (1e15, 1.0, 0),
    ],
)
def test_level_is_the_floor_of_log2_of_priority_plus_the_offset_clamped(deadline_us, penalty, expected):
    assert level(deadline_us, penalty) == expected


def test_near_equal_deadlines_are_of_one_level():
    assert level(260_000) == level(490_000)


def test_a_caller_who_asks_for_nothing_gets_the_units_class_and_deadline():
    terms = Policy(default="batch", deadline=5.0).terms()
    assert (terms.qos_class, terms.budgets.total) == ("batch", 5.0)


def test_a_shorter_deadline_cuts_every_budget_to_it():
    budgets = Policy().terms("interactive", 0.1).budgets
    assert (budgets.first, budgets.between, budgets.total) == (0.1, 0.1, 0.1)


def test_a_longer_deadline_of_an_interactive_request_leaves_its_first_result_due_early():
    budgets = Policy().terms("interactive", 300.0).budgets
    assert (budgets.first, budgets.between, budgets.total) == (0.5, 0.2, 300.0)


def test_a_longer_deadline_of_a_class_with_one_result_moves_that_result_and_lowers_the_level():
    terms = Policy().terms("realtime", 10.0)
    assert terms.budgets.first == 10.0
    assert terms.level < Policy().terms("interactive").level


def test_the_total_is_clamped_to_the_longest_allowed():
    assert Policy(longest=60.0).terms("batch", 3600.0).budgets.total == 60.0


def test_a_class_above_the_ceiling_becomes_the_ceiling():
    terms = Policy(ceiling="interactive").terms("realtime")
    assert (terms.qos_class, terms.budgets) == ("interactive", CLASSES["interactive"])


def test_a_tiny_deadline_buys_no_level_above_the_ceilings_own():
    policy = Policy(ceiling="interactive")
    assert policy.terms("interactive", 0.001).level == policy.terms("interactive").level


def test_the_units_penalty_raises_the_level():
    assert Policy(penalty=4.0).terms().level == Policy().terms().level + 2


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_deadline_is_refused(deadline):
    with pytest.raises(UsageError, match="deadline"):
        Policy().terms(None, deadline)


def test_an_unknown_class_is_refused_with_the_list_of_classes():
    with pytest.raises(UsageError, match="realtime, interactive, batch"):
        Policy().terms("urgent")


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan")])
def test_a_policy_with_a_senseless_penalty_cannot_be_made(penalty):
    with pytest.raises(UsageError, match="penalty"):
        Policy(penalty=penalty)
