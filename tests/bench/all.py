"""Runs all benchmarks, one after the other, and writes docs/benchmarks.md and docs/benchmarks.json."""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.machine import machine, versions
from bench.support.page import Found, page
from bench.support.paths import ROOT

SCRIPTS = ("rest_classify", "sandbox", "hostcall", "handover", "llm", "asr", "memory")
_HERE = Path(__file__).parent
_DOCS = ROOT / "docs"
_TIME_LIMIT = 3600
"""Seconds. The first run builds llama.cpp, which takes most of it on a slow machine."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="show that all work; writes nothing")
    arguments = parser.parse_args()
    facts = machine()
    found = [_run(script, arguments.quick) for script in SCRIPTS]
    if not arguments.quick:
        _write(found, facts)
    for each in found:
        if each.failure:
            print(f"{each.script} did not run: {each.failure}", file=sys.stderr)
    return 1 if any(each.failure for each in found) else 0


def _run(script: str, is_quick: bool) -> Found:
    path = _HERE / f"{script}.py"
    about, notes = _words(path)
    options = ["--quick"] if is_quick else []
    try:
        done = subprocess.run(
            [sys.executable, str(path), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return Found(script, about, notes, (), f"it took more than {_TIME_LIMIT} s")
    print(done.stdout, end="", flush=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return Found(script, about, notes, (), f"status {done.returncode}, {said[-1]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Found(script, about, notes, results)


def _words(path: Path) -> tuple[str, str]:
    """A script's docstring and its NOTES, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NOTES"
    ]
    return ast.get_docstring(tree) or "", notes[0]


def _write(found: list[Found], facts: dict[str, str]) -> None:
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    used = versions()
    report: dict[str, Any] = {
        "date": date,
        "machine": facts,
        "versions": used,
        "results": [dict(result) for each in found for result in each.results],
        "failures": {each.script: each.failure for each in found if each.failure},
    }
    (_DOCS / "benchmarks.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (_DOCS / "benchmarks.md").write_text(page(found, facts, used, date), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
