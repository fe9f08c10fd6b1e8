"""The speech guest against files that are broken, lie, or are no sound."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import TooLarge, Unsupported, UsageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.sandboxes.unit import Graph


@pytest.fixture
def asr(bench_of: Callable[..., Any], scripted: Any) -> Any:
    bench = bench_of("asr", ("logmel",))
    words = scripted.Words((" yes",), ("<|end|>",))
    cross = TensorSpec("cross.0.k", DType.F32, (1, -1))
    mel = TensorSpec("mel", DType.F32, (1, 80, -1))
    encoder = bench.fake_graph((mel,), (cross,), lambda mel: (mel[0, :1].copy(),))
    model = scripted.Model([0, 1], words.vocabulary, 64, (cross,))
    bench.graphs = {
        "encoder": Graph("encoder", executor=encoder),
        "decoder": Graph("decoder", sequences=model, tokenizer=words),
    }
    bench.config = {"prompt": [1], "end": 1}
    return bench


def refused(asr: Any, data: bytes, kind: type[UsageError], message: str, type_: str = "audio/*") -> None:
    with pytest.raises(kind, match=message) as caught:
        asr.ask(asr.part(data, type_))
    assert caught.type is kind


def test_empty_sound(asr: Any) -> None:
    refused(asr, b"", UsageError, "found an empty input")


def test_garbage(asr: Any) -> None:
    refused(asr, b"no sound at all", UsageError, "no known format, beginning with 6e 6f")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"ID3\4" + bytes(20), "MP3"),
        (b"\xff\xfb\x90\x00" + bytes(20), "MP3"),
        (b"\xff\xf1\x50\x80" + bytes(20), "AAC"),
        (b"OggS\0" + bytes(20), "Ogg"),
        (b"\0\0\0\x20ftypM4A " + bytes(20), "MP4"),
        (b"\x1a\x45\xdf\xa3" + bytes(20), "WebM"),
        (b"FORM\0\0\0\0AIFF" + bytes(20), "AIFF"),
        (b"RF64\xff\xff\xff\xffWAVEds64" + bytes(40), "a WAV of the kind RF64"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "JPEG"),
    ],
)
def test_other_formats_are_called_by_their_names(asr: Any, data: bytes, name: str) -> None:
    refused(asr, data, Unsupported, rf"expected sound \(WAV or FLAC\), found {name}")


def test_parts_of_another_type_are_not_read(asr: Any, sounds: Any) -> None:
    refused(asr, sounds.wav(sounds.noise(1)), Unsupported, "found text/plain", "text/plain")


def test_a_wav_that_claims_more_than_it_has(asr: Any, sounds: Any) -> None:
    for claim in (16002, 1 << 30):
        data = sounds.wav(sounds.noise(0.5), claim=claim)
        refused(asr, data, UsageError, f"the WAV claims {claim // 2} samples, but holds 8000")


@pytest.mark.parametrize("claim", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF024])
def test_writers_to_a_pipe_may_leave_the_length_open(asr: Any, sounds: Any, claim: int) -> None:
    assert asr.ask(asr.part(sounds.wav(sounds.noise(0.5), claim=claim))).body["duration"] == 0.5


def test_bytes_after_the_samples_do_no_harm(asr: Any, sounds: Any) -> None:
    data = sounds.wav(sounds.noise(0.5)) + b"LIST\x04\0\0\0abcd" + b"junk"
    assert asr.ask(asr.part(data)).body["duration"] == 0.5


def test_no_samples_at_all(asr: Any, sounds: Any) -> None:
    nothing = np.zeros(0, np.float32)
    refused(asr, sounds.wav(nothing), UsageError, "the WAV has no samples")
    refused(asr, sounds.wav(nothing, claim=0xFFFFFFFF), UsageError, "the WAV has no samples")
    refused(asr, sounds.flac(nothing), UsageError, "the FLAC has no samples")


def test_a_wav_cut_short_anywhere_is_refused(asr: Any, sounds: Any) -> None:
    whole = sounds.wav(sounds.noise(0.5))
    for size in (13, 20, 30, 40, 43, 44, 45, len(whole) // 2, len(whole) - 1):
        with pytest.raises(
            UsageError, match=r"cut short|has no samples|claims 8000 samples|before its samples"
        ):
            asr.ask(asr.part(whole[:size]))


def test_a_flac_cut_short_anywhere_is_refused(asr: Any, sounds: Any) -> None:
    whole = sounds.flac(sounds.noise(1))
    for size in (4, 10, 41, 42, 60, 5000, len(whole) // 2, len(whole) - 1):
        with pytest.raises(UsageError, match=r"damaged|has no samples|claims 1\.00 seconds, but only"):
            asr.ask(asr.part(whole[:size]))


def test_a_flac_that_claims_more_than_it_has(asr: Any, sounds: Any) -> None:
    data = sounds.flac(sounds.noise(1), claim=17000)
    refused(asr, data, UsageError, r"the FLAC claims 1\.06 seconds, but only 1\.00 could be decoded")


def test_what_is_too_long_is_refused_by_the_header(asr: Any, sounds: Any) -> None:
    asr.config["max_seconds"] = 2
    assert asr.ask(asr.part(sounds.wav(sounds.noise(2)))).body["duration"] == 2
    message = r"the recording has 2\.1 seconds, at most 2 are taken"
    refused(asr, sounds.wav(sounds.noise(2.1)), TooLarge, message)
    refused(asr, sounds.wav(sounds.noise(2.1, 44100), 44100), TooLarge, message)
    refused(asr, sounds.flac(sounds.noise(2.1)), TooLarge, message)
    refused(asr, sounds.flac(sounds.noise(0.1), claim=1 << 35), TooLarge, "seconds, at most 2 are taken")
    refused(asr, sounds.flac(sounds.noise(2.1), claim=0), TooLarge, "seconds, at most 2 are taken")


@pytest.mark.parametrize("rate", [0, 1, 3999, 384001, 0xFFFFFFFF])
def test_rates_that_nobody_records_at(asr: Any, sounds: Any, rate: int) -> None:
    data = bytearray(sounds.wav(sounds.noise(0.5)))
    data[24:28] = struct.pack("<I", rate)
    refused(asr, bytes(data), UsageError, "samples a second, expected 4000 to 384000|damaged")


@pytest.mark.parametrize(
    ("at", "value"),
    [(20, 0x55), (20, 0), (22, 0), (22, 5000), (32, 0), (34, 0), (34, 2000), (16, 4), (16, 1 << 31)],
    ids=lambda value: str(value),
)
def test_headers_that_make_no_sense(asr: Any, sounds: Any, at: int, value: int) -> None:
    data = bytearray(sounds.wav(sounds.noise(0.5)))
    width = 4 if at == 16 else 2
    data[at : at + width] = value.to_bytes(width, "little")
    refused(asr, bytes(data), UsageError, "damaged|no format|cut short|no samples")


@pytest.mark.parametrize("kind", ["wav", "flac", "stereo"])
def test_flipped_bits_never_break_the_sandbox(asr: Any, sounds: Any, kind: str) -> None:
    """Whatever comes is answered or refused; a trap or a fault would be raised as a UnitFault."""
    random = np.random.default_rng(13)
    sound = sounds.noise(0.3, channels=2 if kind == "stereo" else 1)
    whole = sounds.wav(sound) if kind == "wav" else sounds.flac(sound)
    for _ in range(60):
        broken = bytearray(whole)
        for _ in range(random.integers(1, 6)):
            broken[random.integers(min(len(broken), 80))] ^= 1 << random.integers(8)
        broken[random.integers(len(broken))] ^= 1 << random.integers(8)
        try:
            assert asr.ask(asr.part(bytes(broken), "audio/*")).body["segments"]
        except UsageError as error:
            assert str(error)
