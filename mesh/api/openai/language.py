"""What a language unit says, as OpenAI's clients read it.

A unit of modality `text` takes in `params` either `messages` ([{"role", "content"}]) or a raw `prompt`. With
`stream` it emits {"delta", "logprobs"?}; it replies {"text", "finish_reason", "usage": {"prompt_tokens",
"completion_tokens"}, "logprobs"?}; logprobs are [{"token", "logprob", "bytes", "top_logprobs": […]}].
"""

from __future__ import annotations

from typing import Any

FINISH_REASONS = ("stop", "length")


def text_of(reply: dict[str, Any]) -> str:
    """The whole text of a reply."""
    return str(reply.get("text", ""))


def piece_of(chunk: dict[str, Any]) -> str:
    """What a chunk adds to the text."""
    return str(chunk.get("delta", ""))


def finish_reason(reply: dict[str, Any]) -> str:
    reason = reply.get("finish_reason", "stop")
    return reason if reason in FINISH_REASONS else "stop"


def usage(reply: dict[str, Any]) -> dict[str, int]:
    """Tokens of the prompt, of the completion, and of both."""
    counts = reply.get("usage")
    counts = counts if isinstance(counts, dict) else {}
    prompt, completion = (_count(counts.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _count(value: Any) -> int:
    """A unit may say anything; what is no count is 0."""
    return value if isinstance(value, int) else 0


def logprobs(reply: dict[str, Any], wanted: bool) -> dict[str, Any] | None:
    return {"content": reply.get("logprobs", []), "refusal": None} if wanted else None
