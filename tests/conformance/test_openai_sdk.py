import httpx
import openai
import pytest
from conformance import openai_checks as checks

from hailmesh.hail.errors import Overloaded, UnitFault

PROMPT = "say one two three four"


@pytest.fixture(scope="module")
def sdk(served):
    with checks.client(served.url) as sdk:
        yield sdk


@pytest.fixture
def recording(tmp_path):
    file = tmp_path / "note.wav"
    file.write_bytes(b"RIFF" + bytes(1000))
    return file


def test_chat_streams_what_it_answers_plainly(sdk):
    assert checks.chat_streams_what_it_answers_plainly(sdk, "llm", PROMPT) == PROMPT


def test_max_tokens_bounds_the_answer(sdk):
    checks.max_tokens_bounds_the_answer(sdk, "llm", PROMPT)


def test_a_stop_word_ends_the_answer(sdk):
    checks.a_stop_word_ends_the_answer(sdk, "llm", PROMPT)


def test_an_unknown_model_is_not_found(sdk):
    checks.an_unknown_model_is_not_found(sdk)


def test_a_bad_option_is_a_bad_request(sdk):
    checks.a_bad_option_is_a_bad_request(sdk, "llm")


def test_the_models_are_listed(sdk):
    checks.the_models_are_listed(sdk, {"llm", "asr", "vision"})


def test_a_recording_is_transcribed(sdk, recording):
    assert checks.a_recording_is_transcribed(sdk, "asr", recording).startswith("1004 bytes of audio/")


def test_a_format_with_timestamps_is_a_bad_request(sdk, recording):
    checks.a_format_with_timestamps_is_a_bad_request(sdk, "asr", recording)


def test_a_transcription_streams(sdk, recording):
    with recording.open("rb") as file:
        events = list(sdk.audio.transcriptions.create(model="asr", file=file, stream=True))
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert events[-1].text.startswith("1004 bytes of audio/")


def test_a_text_is_continued(sdk):
    assert sdk.completions.create(model="llm", prompt="a b").choices[0].text == "a b"


def test_an_overload_is_a_rate_limit_that_says_how_long_to_wait(served, sdk):
    served.node.failing["llm"] = Overloaded("busy", retry_after=0.2)
    try:
        with pytest.raises(openai.RateLimitError) as refusal:
            sdk.chat.completions.create(model="llm", messages=[{"role": "user", "content": "x"}], stream=True)
    finally:
        served.node.failing.clear()
    assert refusal.value.response.headers["retry-after-ms"] == "200"


def test_the_sdk_retries_an_overload_and_then_succeeds(served):
    refused = served.node.failing["llm"] = Overloaded("busy", retry_after=0.01)
    answered = []

    def serve_again(request):
        answered.append(request)
        if len(answered) == 2:
            served.node.failing.clear()

    http = httpx.Client(event_hooks={"request": [serve_again]})
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=2, http_client=http) as sdk:
        answer = sdk.chat.completions.create(model="llm", messages=[{"role": "user", "content": "hi you"}])
    assert answer.choices[0].message.content == "hi you"
    assert len(answered) == 2
    assert refused.retry_after == 0.01


def test_a_stream_that_breaks_raises_in_the_client(served, sdk):
    served.node.failing_late["llm"] = UnitFault("trapped")
    try:
        stream = sdk.chat.completions.create(
            model="llm", messages=[{"role": "user", "content": "one two"}], stream=True
        )
        with pytest.raises(openai.APIError, match="trapped"):
            list(stream)
    finally:
        served.node.failing_late.clear()
