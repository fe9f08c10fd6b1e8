from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hailmesh.hail.extents import Extents


def test_the_lowest_run_that_fits_is_taken() -> None:
    extents = Extents(10)
    assert [extents.take(2), extents.take(3), extents.take(1)] == [0, 2, 5]
    extents.give(0, 2)
    assert extents.take(3) == 6
    assert extents.take(1) == 0


def test_high_takes_the_end_of_the_highest_run() -> None:
    extents = Extents(10)
    assert extents.take(4, high=True) == 6
    assert extents.take(4) == 0
    assert extents.runs() == [(4, 2)]


def test_freed_neighbours_merge_on_both_sides() -> None:
    extents = Extents(9)
    a, b, c = extents.take(3), extents.take(3), extents.take(3)
    assert (a, b, c) == (0, 3, 6)
    extents.give(0, 3)
    extents.give(6, 3)
    assert extents.largest == 3
    extents.give(3, 3)
    assert extents.runs() == [(0, 9)]


def test_none_is_long_enough() -> None:
    extents = Extents(4)
    extents.take(1)
    assert extents.take(4) is None
    assert extents.free == 3


@pytest.mark.parametrize(("start", "length"), [(0, 1), (1, 4), (3, 1), (3, 2)])
def test_giving_what_is_free_already_is_an_error(start: int, length: int) -> None:
    extents = Extents(8)
    extents.take(3)
    extents.give(0, 1)
    with pytest.raises(AssertionError):
        extents.give(start, length)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 12), st.booleans()),
        st.tuples(st.just("give"), st.integers(0, 100), st.booleans()),
    ),
    max_size=80,
)


@given(steps)
def test_runs_never_overlap_and_always_merge(steps: list[tuple[str, int, bool]]) -> None:
    extents = Extents(64)
    taken: list[tuple[int, int]] = []
    for what, number, high in steps:
        if what == "take":
            longest = extents.largest
            start = extents.take(number, high=high)
            assert (start is None) == (number > longest)
            if start is not None:
                taken.append((start, number))
        elif taken:
            extents.give(*taken.pop(number % len(taken)))
        owned = [unit for start, length in taken + extents.runs() for unit in range(start, start + length)]
        assert sorted(owned) == list(range(64)), "every unit is taken once or free once"
        runs = extents.runs()
        assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(runs)), "no two runs touch"
        assert extents.free == sum(length for _, length in runs)
    for start, length in taken:
        extents.give(start, length)
    assert extents.runs() == [(0, 64)]
