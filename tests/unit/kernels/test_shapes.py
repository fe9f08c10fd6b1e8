"""Output shapes told before a run."""

from __future__ import annotations

from hailmesh.kernels.shapes import OutputShapes


def test_names_of_free_dimensions_are_followed_from_inputs_to_outputs() -> None:
    shapes = OutputShapes([["N", 3, "H"]], [["N", 10], [5], ["N", "H", 1]])
    assert shapes.predict(((2, 3, 7),)) == [(2, 10), (5,), (2, 7, 1)]
    assert shapes.predict(((4, 3, 1),)) == [(4, 10), (5,), (4, 1, 1)]


def test_what_no_input_tells_is_unknown_until_it_was_seen() -> None:
    shapes = OutputShapes([["N"]], [["M"], [None, 2]])
    assert shapes.predict(((3,),)) == [None, None]
    shapes.learn(((3,),), 0, (6,))
    shapes.learn(((3,),), 1, (1, 2))
    assert shapes.predict(((3,),)) == [(6,), (1, 2)]
    assert shapes.predict(((4,),)) == [None, None]


def test_an_output_that_varies_for_equal_inputs_is_never_predicted_again() -> None:
    shapes = OutputShapes([["N"]], [["M"], ["N"]])
    shapes.learn(((3,),), 0, (1,))
    shapes.learn(((3,),), 0, (2,))
    assert shapes.predict(((3,),)) == [None, (3,)]
    assert shapes.predict(((5,),)) == [None, (5,)]


def test_a_name_that_stands_for_two_sizes_tells_nothing() -> None:
    shapes = OutputShapes([["N"], ["N"]], [["N"]])
    assert shapes.predict(((3,), (3,))) == [(3,)]
    assert shapes.predict(((3,), (1,))) == [None]


def test_old_shapes_are_forgotten_before_there_are_too_many() -> None:
    shapes = OutputShapes([["N"]], [["M"]])
    for size in range(1000):
        shapes.learn(((size,),), 0, (size,))
    assert shapes.predict(((999,),)) == [(999,)]
    assert shapes.predict(((0,),)) == [None]
