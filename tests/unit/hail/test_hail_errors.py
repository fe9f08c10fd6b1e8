from __future__ import annotations

import pytest

from hailmesh.hail import errors
from hailmesh.hail.errors import MeshError, OutOfArena, Overloaded, TooLarge, UsageError, from_wire

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MeshError)]


def test_every_error_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL) >= 13


@pytest.mark.parametrize("kind", ALL)
def test_an_error_crosses_the_wire_as_what_it_was(kind: type[MeshError]) -> None:
    error = from_wire(kind.code, "why")
    assert type(error) is kind
    assert str(error) == "why"


def test_overloaded_keeps_when_to_come_back() -> None:
    error = from_wire(Overloaded.code, "full", retry_after=2.5)
    assert isinstance(error, Overloaded)
    assert error.retry_after == 2.5


def test_an_unknown_code_is_still_an_error_of_ours() -> None:
    assert type(from_wire("from the future", "why")) is MeshError


def test_the_docstring_draws_every_error() -> None:
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in ALL)
    assert issubclass(TooLarge, UsageError) and not issubclass(OutOfArena, UsageError)


def test_a_subclass_that_keeps_its_parents_code_never_stands_for_it() -> None:
    class FieldError(UsageError):
        pass

    assert FieldError.code == UsageError.code
    assert type(from_wire(UsageError.code, "why")) is UsageError
