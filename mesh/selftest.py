"""Golden cases: an image carries inputs and what their answers must say; here they are judged.

A case names an input file of the image and a list of expectations, each with the `path` of a value in the
answer ("labels.0.label") and one of: `equals`; `contains` (text, ignoring case); `near` with `within`
(numbers); `words` with `errors` (a transcript, at most this share of wrong words).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hailmesh.hail.errors import ImageError


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says what was expected and found where `passed` is false."""

    passed: bool
    reason: str = ""


def judge(answer: dict[str, Any], expectations: list[dict[str, Any]]) -> Verdict:
    """Whether the answer meets all the expectations."""
    if not expectations:
        raise ImageError("a self-test case expects nothing: give it at least one expectation")
    for expectation in expectations:
        verdict = _judge_one(answer, expectation)
        if not verdict.passed:
            return verdict
    return Verdict(True)


def _judge_one(answer: dict[str, Any], expectation: dict[str, Any]) -> Verdict:
    path = expectation["path"]
    try:
        found = lookup(answer, path)
    except (KeyError, IndexError, TypeError, ValueError):
        return Verdict(False, f"the answer has no {path}")
    if "equals" in expectation:
        want = expectation["equals"]
        return Verdict(found == want, f"{path}: expected {want!r}, found {found!r}")
    if "contains" in expectation:
        want = expectation["contains"]
        return Verdict(want.lower() in str(found).lower(), f"{path}: expected {want!r} in {found!r}")
    if "near" in expectation:
        want, within = expectation["near"], expectation["within"]
        return Verdict(abs(found - want) <= within, f"{path}: expected {want} ± {within}, found {found}")
    if "words" in expectation:
        want, allowed = expectation["words"], expectation.get("errors", 0.0)
        rate = word_error_rate(want, str(found))
        return Verdict(rate <= allowed, f"{path}: {rate:.0%} wrong words against {want!r}, found {found!r}")
    raise ImageError(f"self-test: {path} needs one of equals, contains, near, words")


def lookup(answer: Any, path: str) -> Any:
    """The value at a dotted path; numbers index lists."""
    for step in path.split("."):
        answer = answer[int(step)] if isinstance(answer, list) else answer[step]
    return answer


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Edits between the two word sequences over the reference's length (Levenshtein); case and
    punctuation don't count."""
    want, got = (re.findall(r"[\w']+", text.lower()) for text in (reference, hypothesis))
    row = list(range(len(got) + 1))
    for i, word in enumerate(want, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return row[-1] / max(len(want), 1)
