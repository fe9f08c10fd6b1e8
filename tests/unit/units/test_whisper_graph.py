"""The speech converter on a small random model, and the reader of its file format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert import ct2, whisper
from hailmesh.oci.convert.reference.whisper import BANDS, Whisper, log_mel, mel_filters

HEADS, WIDTH, VOCABULARY, POSITIONS, CONTEXT = 2, 64, 101, 50, 32
TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def write_ct2(path: Path, variables: dict[str, Any], *, spec: str = "WhisperSpec", version: int = 6) -> Path:
    data = struct.pack("<I", version) + text(spec) + struct.pack("<II", 3, len(variables))
    for name, array in variables.items():
        head = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        data += (
            text(name) + head + struct.pack("<BI", TYPES[str(array.dtype)], array.nbytes) + array.tobytes()
        )
    path.write_bytes(
        data + struct.pack("<I", 1) + text("decoder/projection/weight") + text("decoder/embeddings/weight")
    )
    return path


def random_variables(layers: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(2)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (rng.standard_normal(shape) * scale).astype(np.float16)

    variables: dict[str, Any] = {
        "decoder/num_heads": np.array(HEADS, np.int16),
        "encoder/conv1/weight": normal(WIDTH, BANDS, 3, scale=0.1),
        "encoder/conv1/bias": normal(WIDTH, scale=0.1),
        "encoder/conv2/weight": normal(WIDTH, WIDTH, 3, scale=0.1),
        "encoder/conv2/bias": normal(WIDTH, scale=0.1),
        "encoder/position_encodings/encodings": normal(POSITIONS, WIDTH, scale=0.3),
        "decoder/position_encodings/encodings": normal(CONTEXT, WIDTH, scale=0.3),
        "decoder/embeddings/weight": normal(VOCABULARY, WIDTH, scale=0.3),
    }
    products = {
        "self_attention/linear_0": (3 * WIDTH, WIDTH), "self_attention/linear_1": (WIDTH, WIDTH),
        "ffn/linear_0": (4 * WIDTH, WIDTH), "ffn/linear_1": (WIDTH, 4 * WIDTH),
    }  # fmt: skip
    across = {
        "attention/linear_0": (WIDTH, WIDTH), "attention/linear_1": (2 * WIDTH, WIDTH),
        "attention/linear_2": (WIDTH, WIDTH),
    }  # fmt: skip
    for side, extra in (("encoder", {}), ("decoder", across)):
        names = [f"{side}/layer_norm"]
        for layer in range(layers):
            block = f"{side}/layer_{layer}/"
            norms = ["self_attention", "ffn", *(["attention"] if extra else [])]
            names += [f"{block}{part}/layer_norm" for part in norms]
            for name, (rows, columns) in {**products, **extra}.items():
                variables[f"{block}{name}/weight"] = normal(rows, columns, scale=columns**-0.5)
                variables[f"{block}{name}/bias"] = normal(rows, scale=0.1)
        for name in names:
            variables[name + "/gamma"] = (1 + normal(WIDTH, scale=0.2)).astype(np.float16)
            variables[name + "/beta"] = normal(WIDTH, scale=0.2)
    return variables


@pytest.fixture
def model(tmp_path: Path) -> ct2.Model:
    return ct2.load(write_ct2(tmp_path / "model.bin", random_variables()))


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return path


@pytest.fixture
def mel() -> Any:
    return np.random.default_rng(4).standard_normal((BANDS, 60)).astype(np.float32)


def test_the_encoder_gives_the_references_keys_and_values(model: ct2.Model, tmp_path: Path, mel: Any) -> None:
    session = ort.InferenceSession(str(save(whisper.encoder(model), tmp_path / "encoder.onnx")))
    names = [value.name for value in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"mel": np.stack([mel, -mel])}), strict=True))
    for row, one in enumerate((mel, -mel)):
        reference = Whisper(model)
        for layer, (keys, values) in enumerate(reference.cross(reference.encode(one))):
            np.testing.assert_allclose(found[f"cross.{layer}.k"][row], keys, atol=2e-4)
            np.testing.assert_allclose(found[f"cross.{layer}.v"][row], values, atol=2e-4)


def test_the_decoder_follows_the_reference(
    model: ct2.Model, tmp_path: Path, mel: Any, sequence: Any, divergence: Any
) -> None:
    reference = Whisper(model)
    cross = reference.cross(reference.encode(mel))
    ids = [int(token) for token in np.random.default_rng(6).integers(0, VOCABULARY, 20)]
    truth = reference.logits(ids, cross)
    bound = {
        f"cross.{layer}.{part}": pair[i][None]
        for layer, pair in enumerate(cross)
        for i, part in enumerate("kv")
    }
    path = save(whisper.decoder(model), tmp_path / "decoder.onnx")
    single = sequence(path, room=CONTEXT, bound=bound)
    found = np.concatenate([single.step([token]) for token in ids])
    assert divergence(truth, found).mean() <= 1e-3
    chunked = sequence(path, room=CONTEXT, bound=bound)
    chunked.step(ids[:5])
    assert divergence(truth[-1:], chunked.step(ids[5:]))[0] <= 1e-3


def test_rows_of_a_batch_have_their_own_positions(
    model: ct2.Model, tmp_path: Path, mel: Any, sequence: Any, divergence: Any
) -> None:
    reference = Whisper(model)
    cross = reference.cross(reference.encode(mel))
    bound = {
        f"cross.{layer}.{part}": np.stack([pair[i], pair[i]])
        for layer, pair in enumerate(cross)
        for i, part in enumerate("kv")
    }
    ids = [int(token) for token in np.random.default_rng(6).integers(0, VOCABULARY, 12)]
    driven = sequence(save(whisper.decoder(model), tmp_path / "d.onnx"), room=CONTEXT, rows=2, bound=bound)
    for at in range(12):
        driven.lengths = np.array([at, max(at - 4, 0)], np.int32)
        found = driven.step([ids[at], ids[max(at - 4, 0)]])
    assert divergence(reference.logits(ids, cross)[[11, 7]], found).max() <= 5e-3


def test_the_same_weights_give_the_same_bytes(model: ct2.Model) -> None:
    for make in (whisper.encoder, whisper.decoder):
        first, second = (make(model).SerializeToString(deterministic=True) for _ in range(2))
        assert first == second


def test_aliases_and_types_are_read(tmp_path: Path) -> None:
    variables = {"decoder/embeddings/weight": np.arange(6, dtype=np.float16).reshape(2, 3)}
    variables |= {kind: np.array([1, 2], kind) for kind in ("float32", "int8", "int16", "int32")}
    model = ct2.load(write_ct2(tmp_path / "model.bin", variables))
    np.testing.assert_array_equal(model.float32("decoder/projection/weight"), [[0, 1, 2], [3, 4, 5]])
    for kind in ("float32", "int8", "int16", "int32"):
        np.testing.assert_array_equal(model.variables[kind], [1, 2])
    with pytest.raises(ImageError, match="no variable 'gone'"):
        model.float32("gone")


def test_another_version_or_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="expected a CTranslate2 model of version 6, found 5"):
        ct2.load(write_ct2(tmp_path / "a.bin", {}, version=5))
    other = ct2.load(write_ct2(tmp_path / "b.bin", {}, spec="TransformerSpec"))
    with pytest.raises(ImageError, match="expected a CTranslate2 WhisperSpec, found 'TransformerSpec'"):
        whisper.encoder(other)


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_ct2(tmp_path / "model.bin", {"a": np.ones((2, 3), np.float32)}).read_bytes()
    path = tmp_path / "cut.bin"
    for size in range(4, len(whole), 3):
        path.write_bytes(whole[:size])
        with pytest.raises(ImageError, match="were promised"):
            ct2.load(path)


def test_a_size_that_contradicts_the_shape_is_refused(tmp_path: Path) -> None:
    path = write_ct2(tmp_path / "model.bin", {"a": np.ones(3, np.float32)})
    path.write_bytes(path.read_bytes().replace(struct.pack("<IBI", 3, 0, 12), struct.pack("<IBI", 4, 0, 12)))
    with pytest.raises(ImageError, match="variable a of type 0"):
        ct2.load(path)


def test_mel_bands_are_slaneys() -> None:
    filters = mel_filters()
    assert filters.shape == (BANDS, 201)
    bins = np.arange(201) * 40.0
    peaks = bins[filters.argmax(1)]
    assert (np.diff(peaks) >= 0).all()
    # Below 1 kHz centres are 37.24 Hz apart: 80 + 2 points up to mel(8000) = 45.245, 200/3 Hz a mel.
    assert np.abs(peaks[:20] - 37.238 * np.arange(1, 21)).max() <= 20
    # Slaney's triangles have equal area: the wider, the lower.
    assert filters[70].max() < filters[40].max() < filters[5].max()


def test_a_tone_shows_in_its_band_and_silence_is_flat() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000).astype(np.float32)
    mel = log_mel(tone)
    assert mel.shape == (BANDS, 100)
    assert abs(int(mel[:, 50].argmax()) - 26) <= 1
    assert np.ptp(log_mel(np.zeros(16000, np.float32))) == 0
