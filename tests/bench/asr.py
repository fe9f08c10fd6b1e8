"""Real-time factor of the speech unit against faster-whisper in 8-bit on the same weights and threads."""

from __future__ import annotations

import re
import sys
import time
import wave
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import orjson
from bench.harness import Measure, Result, alternate, compare, quick, report
from bench.peers.whisper import Whisper, whisper
from bench.support import weights
from bench.support.paths import BUILD, PEERS
from bench.support.worker import UnitWorker, worker

from hailmesh.sandboxes.client import Reply
from hailmesh.sandboxes.protocol import Part

NOTES = """\
Whisper tiny.en from the same published weights, English, greedy, two threads: seconds of work per second
of sound, on a recording of 10 s and on one of about 30 s (the same three times over). Ours is the whole
unit in its worker process, the WAV decoded in the sandbox. It encodes the sound and two seconds of
silence after it, where whisper, and so the peer, always encodes 30 s: that is most of the gain on the
short clip, and the long one, where it can gain nothing by it, shows what is left."""

GOAL = 1.25
THREADS = 2
_CLIP = BUILD / "assets" / "beckett.wav"


def run(is_quick: bool) -> list[Result]:
    rounds = 1 if is_quick else 12
    short_clip, long_clip = _CLIP, _repeated(_CLIP, 3)
    with worker("asr", threads=THREADS) as unit, whisper(weights.whisper(), threads=THREADS) as peer:
        results = [
            _compared("asr-30s", unit, peer, long_clip, rounds),
            _compared("asr", unit, peer, short_clip, rounds),
        ]
    names = ("ours", "peer", "ratio", "spread", "goal", "met")
    longer = {name: results[0].fields()[name] for name in names}
    return [results[0], replace(results[1], extra={**results[1].extra, "clip_30s": longer})]


def _compared(bench: str, unit: UnitWorker, peer: Whisper, clip: Path, rounds: int) -> Result:
    seconds = _seconds(clip)
    part = unit.part("speech", "audio/wav", clip.read_bytes())
    said: dict[str, str] = {}

    def ours() -> float:
        began = time.perf_counter()
        said["ours"] = _transcribe(unit, part)
        return (time.perf_counter() - began) / seconds

    def theirs() -> float:
        took, text = peer.transcribe(clip)
        said["peer"] = text
        return took / seconds

    subjects: dict[str, Measure] = {"ours": ours, "peer": theirs}
    series = alternate(subjects, rounds=rounds, seconds=75.0)
    own, other = _words(said["ours"]), _words(said["peer"])
    words = {"ours": len(own), "peer": len(other), "same": own == other}
    extra = {"seconds": round(seconds, 1), "words": words}
    return compare(bench, series, unit="RTF", goal=GOAL, extra=extra)


def _transcribe(unit: UnitWorker, part: Part) -> str:
    for event in unit.client.events(unit.start(part)):
        if isinstance(event, Reply):
            return str(orjson.loads(event.body)["text"])
    raise AssertionError("events end with a reply, or raise")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _seconds(clip: Path) -> float:
    with wave.open(str(clip)) as sound:
        return float(sound.getnframes() / sound.getframerate())


def _repeated(clip: Path, times: int) -> Path:
    """The same recording several times over."""
    longer = PEERS / f"{clip.stem}-{times}.wav"
    longer.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(clip)) as sound, wave.open(str(longer), "wb") as out:
        out.setparams(sound.getparams())
        frames = sound.readframes(sound.getnframes())
        for _ in range(times):
            out.writeframes(frames)
    return longer


if __name__ == "__main__":
    report(*run(quick(__doc__)))
