"""What OpenAI's own SDK, unmodified, must find at a node: checks for any server with a language unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest


def client(url: str, key: str = "none") -> openai.OpenAI:
    """The SDK, pointed at a node; without retries, so that a refusal is seen as it is."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def chat_streams_what_it_answers_plainly(sdk: openai.OpenAI, model: str, prompt: str) -> str:
    """The streamed pieces make up the plain answer, which is returned; greedy, so that both are the same."""
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 24,
    }
    plain = sdk.chat.completions.create(**asked)
    content = plain.choices[0].message.content
    assert content
    assert plain.choices[0].message.role == "assistant"
    assert plain.choices[0].finish_reason in ("stop", "length")
    assert plain.usage is not None
    assert plain.usage.total_tokens == plain.usage.prompt_tokens + plain.usage.completion_tokens
    assert 0 < plain.usage.completion_tokens <= 24
    chunks = list(sdk.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == content
    assert sum(piece != "" for piece in pieces) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert chunks[-1].usage == plain.usage
    return content


def max_tokens_bounds_the_answer(sdk: openai.OpenAI, model: str, prompt: str) -> None:
    """One token, and the reason says so."""
    answer = sdk.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], max_completion_tokens=1
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1
    assert answer.choices[0].finish_reason == "length"


def a_stop_word_ends_the_answer(sdk: openai.OpenAI, model: str, prompt: str) -> None:
    """Stopping at the answer's second word leaves what comes before it."""
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 24,
    }
    whole = sdk.chat.completions.create(**asked).choices[0].message.content or ""
    word = whole.split()[1]
    stopped = sdk.chat.completions.create(**asked, stop=[word]).choices[0]
    assert stopped.finish_reason == "stop"
    assert (stopped.message.content or "").strip() == whole[: whole.index(word, 1)].strip()


def an_unknown_model_is_not_found(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        sdk.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hi"}])
    assert refusal.value.code == "model_not_found"


def a_bad_option_is_a_bad_request(sdk: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], n=3)
    assert refusal.value.param == "n"


def the_models_are_listed(sdk: openai.OpenAI, expected: set[str]) -> None:
    assert expected <= {model.id for model in sdk.models.list()}
    for name in expected:
        assert sdk.models.retrieve(name).id == name


def a_recording_is_transcribed(sdk: openai.OpenAI, model: str, recording: Path) -> str:
    """JSON and text agree; returns the text."""
    with recording.open("rb") as file:
        answer = sdk.audio.transcriptions.create(model=model, file=file)
    with recording.open("rb") as file:
        plain = sdk.audio.transcriptions.create(model=model, file=file, response_format="text")
    assert plain.strip() == answer.text.strip()
    return answer.text


def a_format_with_timestamps_is_a_bad_request(sdk: openai.OpenAI, model: str, recording: Path) -> None:
    with pytest.raises(openai.BadRequestError) as refusal, recording.open("rb") as file:
        sdk.audio.transcriptions.create(model=model, file=file, response_format="verbose_json")
    assert refusal.value.param == "response_format"
