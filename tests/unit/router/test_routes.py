import pytest

from hailmesh.hail.errors import NotFound
from hailmesh.router.routes import Route, Routes


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    routes.add("vision", "1.0", "image", frozenset({"eyes"}))
    routes.add("detector", "2.1", "image")
    routes.add("llm", "1.0", "text")
    return routes


@pytest.mark.parametrize("name", ["vision", "eyes", "image"])
def test_a_unit_is_found_by_name_alias_and_modality(routes, name):
    assert routes.pick(name) == Route("vision", "1.0")


def test_of_two_units_of_one_modality_the_first_serves_it_until_it_goes(routes):
    routes.remove("vision")
    assert routes.pick("image") == Route("detector", "2.1")


def test_a_units_name_goes_before_anothers_alias():
    routes = Routes()
    routes.add("a", "1", "text", frozenset({"b"}))
    routes.add("b", "1", "text")
    assert routes.pick("b").unit == "b"


def test_what_does_not_exist_is_answered_with_what_does(routes):
    with pytest.raises(NotFound, match=r"vision \(image\), detector \(image\), llm \(text\)"):
        routes.pick("speech")


def test_traffic_is_shared_by_weight(routes):
    routes.weigh("llm", {"1.0": 3, "1.1": 1})
    picked = [routes.pick("text", draw / 100).version for draw in range(100)]
    assert picked.count("1.1") == 25


def test_a_version_of_weight_zero_gets_nothing(routes):
    routes.weigh("llm", {"1.0": 0, "1.1": 1})
    assert {routes.pick("llm", draw / 10).version for draw in range(10)} == {"1.1"}


@pytest.mark.parametrize("weights", [{}, {"1": 0.0}, {"1": -1.0, "2": 2.0}])
def test_senseless_weights_are_refused(routes, weights):
    with pytest.raises(ValueError, match="weights"):
        routes.weigh("llm", weights)
