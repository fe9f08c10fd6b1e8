"""Tokens per second of the language unit against llama.cpp on the same weights and threads."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
import orjson
from bench.harness import HIGHER, Result, Series, alternate, compare, quick, report, short, timed
from bench.peers import llama_cpp
from bench.support import weights
from bench.support.paths import BUILD
from bench.support.worker import UnitWorker, worker

from hailmesh.hail.arena import GRANULE, Arena
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import BEST_EFFORT, Lane
from hailmesh.kernels.sequence import SequenceEngine
from hailmesh.kernels.tokenizer import Tokenizer
from hailmesh.sandboxes.client import Reply

NOTES = """\
SmolLM2-135M-Instruct from the same GGUF (Q4_1), two threads each, one request at a time; ours converted
to ONNX (MatMulNBits with 8-bit activations), the peer built with this machine's vector instructions. Ours
is the whole unit in its worker process: prefill is from the request to the reply of one token, tokenizing
and sampling included, and decode streams every token, each with a call out of the sandbox to sample and
one to feed. The peer's llama-bench runs the bare model and samples nothing. `engine` is our engine
without unit and sandbox; what lies between it and `ours` is what the sandbox costs. Decode is bound by
memory bandwidth on both sides, so it is about equal at best."""

THREADS = 2
_SECONDS = 75.0
_MINUTE = 60_000_000_000
PROMPT, GENERATED = 512, 128
_UNIT = BUILD / "units" / "llm"
_SENTENCE = "The river runs past the old mill, and every evening the miller counts the boats. "
_STORY = "Once upon a time, in a village by the sea, there lived"


def run(is_quick: bool) -> list[Result]:
    prompt, generated, rounds = (64, 16, 1) if is_quick else (PROMPT, GENERATED, 9)
    llama_cpp.ensure()
    model = weights.gguf()
    text = _text_of(prompt)
    with worker("llm", threads=THREADS) as unit, _engine() as engine:
        prefills = alternate(
            {
                "ours": lambda: _unit_prefill(unit, text),
                "peer": lambda: llama_cpp.rate(model, prompt=prompt, threads=THREADS),
                "engine": lambda: _engine_prefill(engine, prompt),
            },
            rounds=rounds,
            seconds=_SECONDS,
        )
        decodes = alternate(
            {
                "ours": lambda: _unit_decode(unit, generated),
                "peer": lambda: llama_cpp.rate(model, generate=generated, threads=THREADS),
                "engine": lambda: _engine_decode(engine, generated),
            },
            rounds=rounds,
            seconds=_SECONDS,
        )
    prefill = _result("llm-prefill", prefills, 1.8)
    decode = _result("llm", decodes, 1.0)
    summary = {name: prefill.fields()[name] for name in ("ours", "peer", "ratio", "spread", "goal", "met")}
    return [prefill, replace(decode, extra={**decode.extra, "prefill": summary})]


def _result(bench: str, series: Series, goal: float) -> Result:
    extra = {"engine": short(series.median("engine"))}
    return compare(bench, series, unit="tokens/s", better=HIGHER, goal=goal, extra=extra)


def _text_of(tokens: int) -> str:
    """A text of about that many tokens; the unit tells how many it were."""
    tokenizer = Tokenizer(_UNIT / "tokenizer.json")
    ids = tokenizer.encode(_SENTENCE * (tokens // 8))[:tokens]
    return tokenizer.decode_bytes(ids).decode()


def _unit_prefill(unit: UnitWorker, text: str) -> float:
    began = time.perf_counter()
    _, ended, usage = _answer(unit, prompt=text, max_tokens=1)
    return usage["prompt_tokens"] / (ended - began)


def _unit_decode(unit: UnitWorker, generated: int) -> float:
    """From the first token on."""
    first, ended, usage = _answer(unit, prompt=_STORY, max_tokens=generated, stream=True)
    return (usage["completion_tokens"] - 1) / (ended - first)


def _answer(unit: UnitWorker, **options: object) -> tuple[float, float, dict[str, int]]:
    """When the first chunk and the reply came, and how many tokens there were."""
    first = None
    for event in unit.client.events(unit.start(unit.options(**options))):
        now = time.perf_counter()
        if isinstance(event, Reply):
            usage: dict[str, int] = orjson.loads(event.body)["usage"]
            if usage["completion_tokens"] < int(str(options["max_tokens"])):
                raise SystemExit(f"the unit stopped early, after {usage}: choose another prompt")
            return now if first is None else first, now, usage
        first = first or now
    raise AssertionError("events end with a reply, or raise")


@contextmanager
def _engine() -> Iterator[SequenceEngine]:
    with Arena.create(256 << 20) as arena, arena.lease(GRANULE, owner="gate") as page:
        cores = tuple(sorted(os.sched_getaffinity(0)))
        lane = Lane(BEST_EFFORT, cores, Gate(page.buffer.address, 1), True)
        decoder = _UNIT / "decoder.onnx"
        with SequenceEngine(
            decoder, context=1024, slots=1, threads=THREADS, lane=lane, arena=arena
        ) as engine:
            yield engine


def _engine_prefill(engine: SequenceEngine, prompt: int) -> float:
    token = CancelToken(time.monotonic_ns() + _MINUTE)
    ids: npt.NDArray[np.int64] = np.arange(1000, 1000 + prompt, dtype=np.int64)
    with engine.open(prompt, token, 0) as sequence:
        return prompt / timed(lambda: sequence.feed(ids, token))


def _engine_decode(engine: SequenceEngine, generated: int) -> float:
    token = CancelToken(time.monotonic_ns() + _MINUTE)
    with engine.open(generated + 1, token, 0) as sequence:
        sequence.feed(np.array([1000], np.int64), token)

        def step() -> None:
            sequence.feed(np.array([sequence.logits.argmax()], np.int64), token)

        return 1 / timed(step, generated)


if __name__ == "__main__":
    report(*run(quick(__doc__)))
