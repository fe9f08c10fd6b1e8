"""Benchmarks that need no peer's build run as they are, from the command line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.all import SCRIPTS

BENCH = Path(__file__).parents[2] / "bench"


def run_quick(name: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "unit", "goal_of", "goal"),
    [("sandbox", "µs", "ours", 100.0), ("hostcall", "µs", "ours", 2.0), ("handover", "µs", "ratio", 50.0)],
)
def test_it_runs_and_its_last_line_is_its_result(name: str, unit: str, goal_of: str, goal: float):
    found = run_quick(name)
    assert (found["bench"], found["unit"], found["goal_of"], found["goal"]) == (name, unit, goal_of, goal)
    ours, peer, ratio = (float(str(found[key])) for key in ("ours", "peer", "ratio"))
    assert ours > 0 and peer > 0
    assert ratio == pytest.approx(peer / ours, rel=0.01)


def test_a_benchmark_that_there_is_not_is_refused_with_those_there_are():
    done = subprocess.run(
        [sys.executable, str(BENCH / "all.py"), "speed"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no speed; there are rest_classify, sandbox" in done.stderr


def test_every_script_is_run_by_all_and_explains_itself():
    scripts = {path.stem for path in BENCH.glob("*.py")} - {"all", "harness"}
    assert scripts == set(SCRIPTS)
    for name in scripts:
        module = importlib.import_module(f"bench.{name}")
        assert module.__doc__ and module.NOTES.strip()


def test_an_unknown_option_is_refused():
    done = subprocess.run(
        [sys.executable, str(BENCH / "sandbox.py"), "--fast"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--fast" in done.stderr
