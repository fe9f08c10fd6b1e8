"""Peak memory of the node with the three reference units, each asked once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
from bench.harness import Result, quick, report
from bench.peers import llama_cpp
from bench.peers.whisper import whisper
from bench.rest_classify import THREADS, plain_server
from bench.support import weights
from bench.support.classify import classify_request, picture
from bench.support.memory import Usage, watching
from bench.support.node import node
from bench.support.paths import BUILD

NOTES = """\
The highest sum over the node and its workers while a picture, a prompt and a recording are answered one
after the other, 20 looks a second, loading not included: private memory, each process's share of
libraries and files, and the arena once, by what of it is resident. The peer is the sum of the three plain
peers, each alone at its highest in the same work: FastAPI with onnxruntime, llama-completion with a
context of 2,048, faster-whisper. Each of our workers is a Python process with an onnxruntime of its own,
and the arena keeps the pages that were once used: that is the price of units that can't take one another
down."""

_MIB = 1 << 20
_QUESTION = "What is the capital of France?"
_RECORDING = BUILD / "assets" / "beckett.wav"


def run(is_quick: bool) -> Result:
    ours = _node()
    parts = {} if is_quick else {"classify": _classify(), "llm": _llm(), "asr": _asr()}
    peer = sum(parts.values()) / _MIB if parts else None
    total = ours.total / _MIB
    extra = {
        "arena": round(ours.shared / _MIB),
        "resident": round(ours.resident / _MIB),
        "peers": {name: round(nbytes / _MIB) for name, nbytes in parts.items()},
    }
    ratio = None if peer is None else peer / total
    return Result("memory", total, peer, "MiB", ratio, None, None, extra=extra)


def _node() -> Usage:
    files = {
        "image": ("coffee.jpg", picture(), "image/jpeg"),
        "text": (None, _QUESTION.encode(), "text/plain"),
        "speech": ("beckett.wav", _RECORDING.read_bytes(), "audio/wav"),
    }
    with node("vision", "llm", "asr") as running, watching(running.pid) as peak:
        for modality, file in files.items():
            answer = httpx.post(
                f"{running.url}/v1/invoke",
                params={"modalities": modality},
                files={modality: file},
                timeout=120,
            )
            answer.raise_for_status()
    return peak.highest


def _classify() -> int:
    with plain_server() as running, watching(running.pid) as peak:
        classify_request(running.url, "/classify")()
    return peak.highest.total


def _llm() -> int:
    command = [
        str(llama_cpp.ensure() / "llama-completion"),
        *("-m", str(weights.gguf()), "-t", str(THREADS), "-c", "2048", "-n", "32"),
        *("--temp", "0", "-no-cnv", "-p", _QUESTION),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=llama_cpp.environment(),
    )
    with watching(process.pid) as peak:
        if process.wait():
            raise SystemExit(f"llama-completion ended with {process.returncode}")
    return peak.highest.total


def _asr() -> int:
    with whisper(weights.whisper(), threads=THREADS) as peer, watching(peer.process.pid) as peak:
        peer.transcribe(_RECORDING)
    return peak.highest.total


if __name__ == "__main__":
    report(run(quick(__doc__)))
