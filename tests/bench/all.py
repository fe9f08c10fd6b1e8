"""Runs all benchmarks, one after the other, and writes docs/benchmarks.md and docs/benchmarks.json."""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.machine import machine, versions
from bench.support.page import Found, page
from bench.support.paths import ROOT

SCRIPTS = ("rest_classify", "sandbox", "hostcall", "handover", "llm", "asr", "memory")
_HERE = Path(__file__).parent
_PAGE = ROOT / "docs" / "benchmarks.md"
_JSON = _PAGE.with_suffix(".json")
_TIME_LIMIT = 3600
"""Seconds. The first run builds llama.cpp, which takes most of it on a slow machine."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="show that all work; writes nothing")
    parser.add_argument("scripts", nargs="*", metavar="NAME", help="run these, and keep the others' results")
    arguments = parser.parse_args()
    unknown = set(arguments.scripts) - set(SCRIPTS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SCRIPTS)}")
    facts = machine()
    found = {script: _run(script, arguments.quick) for script in arguments.scripts or SCRIPTS}
    if not arguments.quick:
        _write({**_before(), **found}, facts)
    for each in found.values():
        if each.failure:
            print(f"{each.script} did not run: {each.failure}", file=sys.stderr)
    return 1 if any(each.failure for each in found.values()) else 0


def _run(script: str, is_quick: bool) -> Found:
    path = _HERE / f"{script}.py"
    command = [sys.executable, str(path), *(["--quick"] if is_quick else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return _found(script, failure=f"it took more than {_TIME_LIMIT} s")
    print(done.stdout, end="", flush=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return _found(script, failure=f"status {done.returncode}, {said[-1]}")
    return _found(script, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])


def _found(
    script: str, results: Sequence[Mapping[str, Any]] = (), *, date: str = "", failure: str = ""
) -> Found:
    about, notes = _words(_HERE / f"{script}.py")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Found(script, about, notes, results, date or now, failure)


def _before() -> dict[str, Found]:
    """What the last run found, for what isn't run again."""
    if not _JSON.exists():
        return {}
    benchmarks = json.loads(_JSON.read_text(encoding="utf-8"))["benchmarks"]
    return {script: _found(script, **benchmarks[script]) for script in SCRIPTS if script in benchmarks}


def _words(path: Path) -> tuple[str, str]:
    """A script's docstring and its NOTES, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NOTES"
    ]
    return ast.get_docstring(tree) or "", notes[0]


def _write(found: Mapping[str, Found], facts: Mapping[str, str]) -> None:
    used = versions()
    report = {
        "machine": facts,
        "versions": used,
        "benchmarks": {
            script: {"date": each.date, "failure": each.failure, "results": list(each.results)}
            for script, each in found.items()
        },
    }
    _JSON.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    ordered = [found[script] for script in SCRIPTS if script in found]
    _PAGE.write_text(page(ordered, facts, used), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
