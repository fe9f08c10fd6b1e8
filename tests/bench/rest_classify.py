"""Classifying a picture over REST: the node against plain FastAPI, onnxruntime and Pillow."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Result, alternate, compare, quick, report, timed
from bench.support.classify import classify_request
from bench.support.node import node
from bench.support.paths import BUILD
from bench.support.process import Server, server

NOTES = """\
One client, one keep-alive connection, a JPEG of 640×480, single requests in alternation; both sides run
the same ONNX file with two threads, in a process of their own, and answer five labels with their scores
(it is checked first that they see the same). The goal is a p50 of at most 1.15 times the peer's. Ours
decodes the JPEG inside a WebAssembly sandbox, which is what the difference pays for: the peer decodes
with Pillow's libjpeg-turbo in vector code, in its own address space, where a decoder's bug is the whole
server's. `stages_ms` are the medians of what the node says about its own requests."""

GOAL = 0.87
THREADS = 2
PAUSE = 0.1
"""Seconds between two requests: onnxruntime's threads spin for some 60 ms after a run unless told
otherwise, and the one side would pay for the other's."""
_PEER = Path(__file__).parent / "peers" / "fastapi_classify.py"


@contextmanager
def plain_server() -> Iterator[Server]:
    """The peer's process."""
    unit = BUILD / "units" / "vision"
    command = [sys.executable, str(_PEER), str(unit), str(THREADS)]
    with server(command, {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}) as running:
        yield running


def run(is_quick: bool) -> Result:
    rounds, warmup = (10, 3) if is_quick else (150, 20)
    stages: list[dict[str, float]] = []
    with node("vision", threads=THREADS) as ours, plain_server() as theirs:
        mesh, plain = classify_request(ours.url), classify_request(theirs.url, "/classify")
        _check_same(mesh()["results"]["image"]["labels"], plain()["labels"])

        def classify() -> float:
            return timed(lambda: stages.append(mesh()["results"]["image"]["timings"])) * 1e3

        def peer() -> float:
            return timed(plain) * 1e3

        series = alternate({"ours": classify, "peer": peer}, rounds=rounds, warmup=warmup, pause=PAUSE)
    medians = {name: round(statistics.median(each[name] for each in stages), 3) for name in stages[0]}
    extra = {"stages_ms": medians}
    return compare("rest-classify", series, unit="ms", goal=GOAL, extra=extra)


def _check_same(ours: list[dict[str, Any]], peer: list[dict[str, Any]]) -> None:
    """SystemExit unless both see the same: the same first label, with about the same score. Their JPEG
    decoders differ in the last bits."""
    first, other = ours[0], peer[0]
    if len(ours) != len(peer) or first["index"] != other["index"]:
        raise SystemExit(f"the two disagree about the picture: {first} and {other}")
    if abs(first["score"] - other["score"]) > 0.05:
        raise SystemExit(f"the two disagree about the score: {first} and {other}")


if __name__ == "__main__":
    report(run(quick(__doc__)))
