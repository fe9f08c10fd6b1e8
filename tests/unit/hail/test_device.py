from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hailmesh.hail import devices
from hailmesh.hail.arena import Arena
from hailmesh.hail.device import choose, discover, open_device
from hailmesh.hail.devices.cpu import copy_bandwidth
from hailmesh.hail.errors import DeviceError, NotFound


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files are adapters too."""
    monkeypatch.setattr(devices, "__path__", [*devices.__path__, str(tmp_path)])
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(f"{devices.__name__}.{file.stem}", None)


ABSENT = """
from hailmesh.hail.adapter import BaseAdapter
from hailmesh.hail.errors import DeviceError

class Adapter(BaseAdapter):
    rank = 90

    def _probe(self):
        raise DeviceError("no such chip on this board")
"""


def test_adapters_are_found_by_file_name(adapters: Path) -> None:
    assert {"cpu", "null"} <= set(discover())
    (adapters / "brick.py").write_text("raise RuntimeError('discovery imports nothing')")
    (adapters / "_helper.py").write_text("")
    assert "brick" in discover()
    assert "_helper" not in discover()


def test_the_device_asked_for_is_chosen(arena: Arena) -> None:
    choice = choose(arena, "cpu")
    assert (choice.chosen, choice.fallback) == ("cpu", False)
    assert "asked for" in choice.reason
    choice.device.close()


def test_a_fallback_says_what_was_passed_over_and_why(arena: Arena, adapters: Path) -> None:
    (adapters / "brick.py").write_text(ABSENT)
    for asked in (None, "brick"):
        choice = choose(arena, asked)
        assert choice.chosen != "brick"
        assert choice.fallback
        assert "brick: no such chip on this board" in choice.reason
        choice.device.close()


def test_a_missing_package_is_one_clear_line(arena: Arena, adapters: Path) -> None:
    (adapters / "brick.py").write_text("import a_package_nobody_has")
    with pytest.raises(DeviceError, match=r"needs a package that isn't installed: .*a_package_nobody_has"):
        open_device("brick", arena)
    choice = choose(arena)
    assert choice.fallback
    assert "a_package_nobody_has" in choice.reason
    choice.device.close()


def test_null_is_only_for_those_who_ask(arena: Arena) -> None:
    choice = choose(arena)
    assert choice.chosen != "null"
    choice.device.close()
    asked = choose(arena, "null")
    assert (asked.chosen, asked.fallback) == ("null", False)
    asked.device.close()


def test_a_device_of_rank_0_is_no_fallback(
    arena: Arena, adapters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "__path__", [str(adapters)])
    (adapters / "brick.py").write_text(ABSENT)
    (adapters / "idle.py").write_text("from hailmesh.hail.devices.null import Adapter")
    assert discover() == ("brick", "idle")
    with pytest.raises(DeviceError, match="no device works: brick: no such chip on this board"):
        choose(arena)


def test_an_adapter_that_is_not_there_is_not_found(arena: Arena) -> None:
    with pytest.raises(NotFound, match="no device adapter 'abacus'; there are"):
        open_device("abacus", arena)
    choice = choose(arena, "abacus")
    assert choice.fallback and "abacus" in choice.reason
    choice.device.close()


def test_the_bandwidth_is_measured_once() -> None:
    assert copy_bandwidth() > 1e8
    assert copy_bandwidth() == copy_bandwidth()
