"""The speech guest: which samples the model hears, and what becomes of its tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import UnitFault, Unsupported, UsageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.sandboxes.instance import Instance
from hailmesh.sandboxes.unit import Graph

Array = npt.NDArray[Any]
RATE = 16000
START, PLAIN, END = "<|start|>", "<|plain|>", "<|end|>"
WORDS = (" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", " and", " so", " on")


@pytest.fixture
def asr(bench_of: Callable[..., Any], scripted: Any) -> Any:
    """A bench that remembers the samples it is to hear, with a model that says what `hears` was told."""
    bench = bench_of("asr")
    words = scripted.Words(WORDS, (START, PLAIN, END))
    start, plain, end = (words.token(name) for name in (START, PLAIN, END))
    value, key = (TensorSpec(f"cross.0.{name}", DType.F32, (1, -1)) for name in "vk")
    bench.model = scripted.Model([end], words.vocabulary, 64, (key, value))

    def encode(mel: Array) -> tuple[Array, ...]:
        return np.full((1, 2), 2, np.float32), np.full((1, 3), mel.shape[2], np.float32)

    bench.mel = bench.fake_kernel(lambda args, samples: (1, 80, args["context_samples"] // 160))
    bench.kernels["logmel"] = bench.mel
    encoder = bench.fake_graph((TensorSpec("mel", DType.F32, (1, 80, -1)),), (value, key), encode)
    bench.graphs = {
        "encoder": Graph("encoder", executor=encoder),
        "decoder": Graph("decoder", sequences=bench.model, tokenizer=words),
    }
    bench.config = {
        "prompt": [start, plain],
        "end": end,
        "max_id": end,
        "suppress": [plain],
        "suppress_begin": [end],
    }

    def hears(*scripts: list[int], ends: bool = True) -> None:
        bench.model.scripts = [[*script, *([end] if ends else [])] for script in scripts]

    bench.hears = hears
    bench.hears([0, 1, 2])
    return bench


def heard(bench: Any, data: bytes, type_: str = "audio/*") -> Array:
    """The samples that reach the model, all windows after one another."""
    bench.mel.calls.clear()
    bench.answer_body = bench.ask(bench.part(data, type_)).body
    return np.concatenate([samples for _, samples in bench.mel.calls])


def differ(found: Array, expected: Array) -> float:
    """The largest difference."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


@pytest.mark.parametrize("kind", ["i16", "i24", "i32", "f32"])
def test_samples_of_a_wav_arrive_unchanged(asr: Any, sounds: Any, kind: str) -> None:
    sound = sounds.noise(1.5)
    assert differ(heard(asr, sounds.wav(sound, kind=kind), "audio/wav"), sound) < 1e-6


def test_eight_bits_are_unsigned(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(1)
    assert differ(heard(asr, sounds.wav(sound, kind="u8")), sound) < 1 / 64


def test_channels_are_averaged(asr: Any, sounds: Any) -> None:
    for channels in (2, 6):
        sound = sounds.noise(1, channels=channels)
        assert differ(heard(asr, sounds.wav(sound)), sound.mean(1)) < 1e-5


@pytest.mark.parametrize("channels", [1, 2])
def test_samples_of_a_flac_arrive_unchanged(asr: Any, sounds: Any, channels: int) -> None:
    sound = sounds.noise(0.7, channels=channels)
    expected = sound if channels == 1 else sound.mean(1)
    assert differ(heard(asr, sounds.flac(sound), "audio/flac"), expected) < 1e-5


def test_a_flac_of_unknown_length_is_read_to_its_end(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(1)
    found = heard(asr, sounds.flac(sound, claim=0))
    assert differ(found[: len(sound)], sound) < 1e-5
    assert not found[len(sound) :].any()
    assert asr.answer_body["duration"] == 1


def test_chunks_before_the_samples_are_skipped(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(0.5)
    extra = b"LIST\x05\0\0\0INFOx\0" + b"fact\x04\0\0\0\0\0\0\0"
    assert differ(heard(asr, sounds.wav(sound, extra=extra)), sound) < 1e-6


def test_samples_that_are_no_numbers_are_silence(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(0.5)
    broken = sound.copy()
    broken[100:110], broken[200] = np.nan, np.inf
    sound[100:110] = sound[200] = 0
    assert differ(heard(asr, sounds.wav(broken, kind="f32")), sound) < 1e-6


def level(sound: Array) -> float:
    """Root mean square in decibels, of the middle half."""
    quarter = len(sound) // 4
    return float(10 * np.log10(np.mean(sound[quarter:-quarter].astype(np.float64) ** 2) + 1e-20))


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000, 44056])
def test_other_rates_are_resampled_in_place(asr: Any, sounds: Any, rate: int) -> None:
    """What can be heard at both rates stays where and as loud as it is, to 50 dB."""
    for hertz in (100, 1000, 0.4 * min(rate, RATE)):
        found = heard(asr, sounds.wav(sounds.tone(hertz, 1, rate), rate, kind="f32"))
        assert len(found) == RATE
        expected = sounds.tone(hertz, 1, RATE)
        assert level(found - expected) < level(expected) - 50, f"{hertz} Hz"


@pytest.mark.parametrize("rate", [24000, 44100, 48000, 96000])
def test_what_the_model_cannot_hear_does_not_fold_back(asr: Any, sounds: Any, rate: int) -> None:
    for hertz in (9500, 11000):
        tone = sounds.tone(hertz, 1, rate)
        found = heard(asr, sounds.wav(tone, rate, kind="f32"))
        assert level(found) < level(tone) - 50, f"{hertz} Hz"


def test_the_answer_is_text_with_its_segments(asr: Any, sounds: Any) -> None:
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(2.5)), "audio/wav"))
    assert answer.body == {
        "text": "the quick brown",
        "language": "en",
        "duration": 2.5,
        "segments": [{"start": 0, "end": 2.5, "text": "the quick brown"}],
    }
    assert answer.chunks == []


def test_the_model_is_prompted_and_gets_the_encoders_outputs_by_name(asr: Any, sounds: Any) -> None:
    asr.ask(asr.part(sounds.wav(sounds.noise(2.5))))
    assert asr.model.fed == [[12, 13], [0], [1], [2]]
    (given,) = asr.model.given
    assert given["cross.0.k"].tolist() == [[500, 500, 500]], "ten milliseconds a frame: 2.5 s, tail, rounded"
    assert given["cross.0.v"].tolist() == [[2, 2]]
    assert asr.model.open_now == 0


@pytest.mark.parametrize(
    ("seconds", "tail", "context"),
    [
        (0.2, 2, 3),
        (1, 2, 3),
        (1.01, 2, 4),
        (9.96, 2, 12),
        (27.9, 2, 30),
        (29.5, 2, 30),
        (5, 0, 5),
        (5, 60, 30),
    ],
)
def test_the_context_is_the_sound_and_a_tail_in_whole_seconds(
    asr: Any, sounds: Any, seconds: float, tail: float, context: int
) -> None:
    asr.config["tail_seconds"] = tail
    heard(asr, sounds.wav(sounds.noise(seconds)))
    assert [args for args, _ in asr.mel.calls] == [{"context_samples": context * RATE}]


def test_unwanted_tokens_are_never_chosen(asr: Any, sounds: Any) -> None:
    end, plain = asr.config["end"], asr.config["suppress"][0]
    asr.model.certainty = 0.5
    asr.hears([end, 1, plain, 2])
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(1))))
    assert [ids for (ids,) in asr.model.fed[1:]] == [0, 1, 0, 2], "the best of the others, token 0, instead"
    assert answer.body["text"] == "the quick the brown"


def test_long_sound_is_cut_where_it_is_quiet(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(75)
    for second in (26.5, 53.2):
        sound[int(second * RATE) : int((second + 0.5) * RATE)] *= 0.01
    asr.hears([0, 1], [2], [3, 4, 5])
    answer = asr.ask(asr.part(sounds.wav(sound)), stream=True)
    first, second, third = answer.body["segments"]
    assert 26.5 <= first["end"] <= 27
    assert 53.2 <= second["end"] <= 53.7
    assert (second["start"], third["start"], third["end"]) == (first["end"], second["end"], 75)
    assert answer.body["text"] == "the quick brown fox jumps over"
    assert [chunk["delta"] for chunk in answer.chunks] == ["the quick", " brown", " fox jumps over"]
    assert [chunk["segment"] for chunk in answer.chunks] == answer.body["segments"]


def test_no_sample_is_lost_between_windows(asr: Any, sounds: Any) -> None:
    sound = sounds.noise(95.3)
    asr.hears([0], [1], [2], [3])
    asr.mel.calls.clear()
    segments = asr.ask(asr.part(sounds.wav(sound))).body["segments"]
    for (_, samples), segment in zip(asr.mel.calls, segments, strict=True):
        begin, end = (round(segment[name] * RATE) for name in ("start", "end"))
        assert end - begin <= 30 * RATE
        assert differ(samples[: end - begin], sound[begin:end]) < 1e-6
        assert not samples[end - begin :].any(), "silence after the cut"
    assert segments[-1]["end"] == 95.3


@pytest.mark.parametrize("seconds", [30, 30.01, 60])
def test_windows_at_the_edge(asr: Any, sounds: Any, seconds: float) -> None:
    asr.hears([0], [1], [2])
    segments = asr.ask(asr.part(sounds.wav(sounds.noise(seconds)))).body["segments"]
    assert len(segments) == {30: 1, 30.01: 2, 60: 3}[seconds]
    assert segments[-1]["end"] == seconds


def test_silence_is_not_transcribed(asr: Any, sounds: Any) -> None:
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(5) * 0.0003)))
    assert answer.body["text"] == ""
    assert answer.body["segments"] == [{"start": 0, "end": 5, "text": ""}]
    assert asr.model.given == [], "the model was not asked"


def test_a_faint_voice_is(asr: Any, sounds: Any) -> None:
    assert asr.ask(asr.part(sounds.wav(sounds.noise(5) * 0.002))).body["text"] == "the quick brown"


def test_what_the_model_takes_for_no_speech_and_doubts_is_dropped(asr: Any, sounds: Any) -> None:
    """As openai/whisper decides: the first token's logits say `no speech`, and the transcript's mean
    log-probability is below -1."""
    plain = asr.config["no_speech"] = asr.config["suppress"][0]
    sound = asr.part(sounds.wav(sounds.noise(3)))
    for certainties, text in (
        ({1: 0.9}, "the quick brown"),
        ({2: 0.3, 3: 0.3, 4: 0.3, 5: 0.3}, ""),
        ({1: 0.5, 2: 0.3, 3: 0.3, 4: 0.3, 5: 0.3}, "the quick brown"),
    ):
        asr.hears([plain, 0, 1, 2])
        asr.model.certainties = certainties
        asr.model.given.clear()
        assert asr.ask(sound).body["text"] == text
        assert asr.model.fed == [[12], [13], [0], [1], [2]], "the first token of the prompt alone"
        assert len(asr.model.given) == 1, "and no second attempt"


def test_where_a_short_context_gives_nothing_the_full_one_is_tried(asr: Any, sounds: Any) -> None:
    del asr.config["suppress_begin"]
    asr.hears([], [3, 4])
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(3))))
    assert answer.body["text"] == "fox jumps"
    assert [args["context_samples"] // RATE for args, _ in asr.mel.calls] == [5, 30]
    asr.hears([], [])
    assert asr.ask(asr.part(sounds.wav(sounds.noise(3)))).body["text"] == ""


def test_a_model_that_repeats_itself_gets_the_full_context(asr: Any, sounds: Any) -> None:
    asr.hears([0, *[1, 2, 3] * 30], [0, 1, 2, 3])
    assert asr.ask(asr.part(sounds.wav(sounds.noise(3)))).body["text"] == "the quick brown fox"
    assert len(asr.model.given) == 2


def test_repetitions_that_remain_are_told_once(asr: Any, sounds: Any) -> None:
    asr.hears([0, *[1, 2, 3] * 30])
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(29))))
    assert answer.body["text"] == "the quick brown fox"
    assert len(asr.model.fed) < 40, "it was stopped early"


def test_people_may_repeat_themselves(asr: Any, sounds: Any) -> None:
    asr.hears([5, 6] * 6)
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(3))))
    assert answer.body["text"] == " ".join(["over a"] * 6)
    assert len(asr.model.given) == 1


def test_a_transcript_without_end_stops_at_the_limit(asr: Any, sounds: Any) -> None:
    asr.config["max_tokens"] = 10
    asr.hears([index % 12 for index in range(20)], ends=False)
    answer = asr.ask(asr.part(sounds.wav(sounds.noise(29))))
    assert len(answer.body["text"].split()) == 10
    assert asr.model.opened == 12


def test_a_growing_recording_is_awaited(asr: Any, sounds: Any) -> None:
    data = sounds.wav(sounds.noise(3), claim=0xFFFFFFFF)
    part = asr.streamed(data, "audio/wav", len(data) + 100)
    run = asr.run_of(part)
    run.inputs[0].size = 1000

    def grow() -> None:
        for size in (5000, 40000, len(data)):
            run.grow(0, size, size == len(data))

    writer = threading.Thread(target=grow)
    with Instance(asr.unit, asr.module) as instance:
        writer.start()
        answer = asr.answer(instance, run)
    writer.join()
    assert answer.body["duration"] == 3


def test_an_instance_answers_request_after_request(asr: Any, sounds: Any) -> None:
    with Instance(asr.unit, asr.module) as instance:
        before = asr.arena.count
        for seconds in (1, 40, 2, 0, 3):
            asr.hears([0], [1])
            run = asr.run_of(asr.part(sounds.wav(sounds.noise(seconds))))
            if seconds:
                assert asr.answer(instance, run).body["duration"] == seconds
            else:
                with pytest.raises(UsageError, match="the WAV has no samples"):
                    asr.answer(instance, run)
            asr.release_parts()
            assert asr.arena.count == before


def test_only_the_units_language_is_transcribed(asr: Any, sounds: Any) -> None:
    sound = asr.part(sounds.wav(sounds.noise(1)))
    assert asr.ask(sound, language="en").body["language"] == "en"
    with pytest.raises(Unsupported, match="transcribes the language 'en', not 'de'"):
        asr.ask(sound, language="de")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": None}, "config.prompt is missing"),
        ({"prompt": ["x"]}, "config.prompt: expected a list of token ids"),
        ({"end": None}, "config.end is missing"),
        ({"encoder": "ears"}, "the unit's image has no graph 'ears', which its config names"),
        ({"decoder": "encoder"}, "graph 'encoder' has no room for a transcript"),
        ({"max_seconds": 0}, "config.max_seconds: expected a number"),
    ],
)
def test_a_wrong_configuration_is_the_units_fault(
    asr: Any, sounds: Any, change: dict[str, Any], message: str
) -> None:
    asr.config.update(change)
    with pytest.raises(UnitFault, match=message):
        asr.ask(asr.part(sounds.wav(sounds.noise(1))))
