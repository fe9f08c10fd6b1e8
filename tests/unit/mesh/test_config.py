"""Settings come from a file, then the environment, then the command line; what is wrong is said."""

from pathlib import Path

import pytest

from hailmesh.hail.errors import UsageError
from hailmesh.mesh.config import load, parse_size


def test_the_environment_overrides_the_file_and_the_command_line_overrides_both(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text('port = 1000\narena = "1GiB"\nqueue = 7\n')
    config = load(file, {"HAILMESH_PORT": "2000", "HAILMESH_ARENA": "2GiB"}, port=3000)
    assert (config.port, config.arena, config.queue) == (3000, "2GiB", 7)


def test_none_on_the_command_line_means_not_given():
    assert load(None, {"HAILMESH_PORT": "2000"}, port=None).port == 2000


def test_lists_are_split_at_commas_in_the_environment():
    assert load(None, {"HAILMESH_API_KEYS": "one, two"}).api_keys == ("one", "two")


@pytest.mark.parametrize(("text", "value"), [("1", True), ("True", True), ("no", False), (False, False)])
def test_a_switch_takes_the_usual_words(text, value):
    assert load(None, {"HAILMESH_SPIN": text}).spin is value


def test_variables_of_the_command_line_are_no_settings():
    assert load(None, {"HAILMESH_URL": "http://elsewhere", "HAILMESH_TOKEN": "x"}).port == 8080


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prot": 1}, "did you mean port"),
        ({"port": "many"}, "port: expected int"),
        ({"port": 70000}, "port: expected 0 to 65535"),
        ({"lanes": "narrow"}, "lanes: expected one of wide, partitioned"),
        ({"spin": "perhaps"}, "spin: expected bool, found 'perhaps'"),
        ({"queue": 0}, "queue: expected at least 1"),
        ({"arena": "lots"}, "'lots' is not a size"),
        ({"max_body": "10%"}, "a percentage has no meaning here"),
        ({"host": "0.0.0.0"}, "set api_keys"),
    ],
)
def test_what_is_wrong_is_named(values, message):
    with pytest.raises(UsageError, match=message):
        load(None, {}, **values)


def test_listening_beyond_loopback_is_allowed_with_keys():
    assert load(None, {}, host="0.0.0.0", api_keys=["secret"]).api_keys == ("secret",)


def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no configuration file at .*absent\.toml"):
        load(tmp_path / "absent.toml", {})
    broken = tmp_path / "broken.toml"
    broken.write_text("port = ")
    with pytest.raises(UsageError, match="not valid TOML"):
        load(broken, {})


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("65536", 65536), ("64KiB", 65536), ("1.5 GB", 1_500_000_000), ("2GiB", 2 << 30), ("10mb", 10_000_000)],
)
def test_sizes(text, nbytes):
    assert parse_size(text) == nbytes


def test_a_percentage_is_of_what_is_given():
    assert parse_size("25%", of=1000) == 250
