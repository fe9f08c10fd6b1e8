import pytest

from hailmesh.hail.errors import UsageError, from_wire
from hailmesh.mesh.api.fields import FieldError, bounded, counted, optional, parse_object, required


def test_a_field_of_its_type_is_returned_and_null_is_absent():
    assert optional({"a": "x"}, "a", str) == "x"
    assert optional({"a": None}, "a", str) is None
    assert optional({}, "a", str) is None


def test_a_whole_number_is_a_number_but_true_is_not():
    assert optional({"a": 2}, "a", float) == 2.0
    for kind in (int, float):
        with pytest.raises(FieldError, match="found true or false"):
            optional({"a": True}, "a", kind)


def test_a_missing_field_is_named():
    with pytest.raises(FieldError, match="ref is missing") as error:
        required({}, "ref", str)
    assert error.value.param == "ref"


@pytest.mark.parametrize("value", [-0.1, 2.1, float("inf"), float("nan")])
def test_numbers_out_of_bounds_are_refused(value):
    with pytest.raises(FieldError, match="from 0 to 2"):
        bounded({"t": value}, "t", 0, 2)


def test_counts_out_of_bounds_are_refused():
    assert counted({"n": 3}, "n", 1, 3) == 3
    with pytest.raises(FieldError, match="from 1 to 3"):
        counted({"n": 4}, "n", 1, 3)


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff", b"[" * 5000])
def test_what_is_no_json_object_is_refused(raw):
    with pytest.raises(UsageError, match="the body"):
        parse_object(raw)


def test_a_usage_error_from_a_worker_is_no_field_error():
    """Both have the same code; a worker's error has no field to name."""
    error = from_wire("usage", "the picture is empty")
    assert type(error) is UsageError
