"""The options of a generation: what of OpenAI's request is honoured; the rest is refused, not ignored."""

from __future__ import annotations

from typing import Any

from hailmesh.mesh.api.fields import FieldError, bounded, counted, optional

MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20


def sampling(body: dict[str, Any]) -> dict[str, Any]:
    """The unit's options: max_tokens, temperature, top_p, seed, stop; those that the caller left out stay
    the unit's own."""
    limit = counted(body, "max_completion_tokens", 1, 1 << 20)
    if limit is None:
        limit = counted(body, "max_tokens", 1, 1 << 20)
    options = {
        "max_tokens": limit,
        "temperature": bounded(body, "temperature", 0, 2),
        "top_p": bounded(body, "top_p", 0, 1),
        "seed": counted(body, "seed", -(1 << 63), (1 << 63) - 1),
        "stop": _stops(body.get("stop")),
    }
    return {name: value for name, value in options.items() if value is not None}


def refuse_unsupported(body: dict[str, Any]) -> None:
    """FieldError for what would change the answer but isn't there."""
    if (counted(body, "n", 1, 128) or 1) != 1:
        raise FieldError("n: this node gives one choice a request", "n")
    for name in ("frequency_penalty", "presence_penalty"):
        if bounded(body, name, -2, 2):
            raise FieldError(f"{name}: not supported here, leave it at 0", name)
    for name in ("tools", "functions", "logit_bias", "audio", "web_search_options"):
        if body.get(name):
            raise FieldError(f"{name}: not supported here", name)
    if body.get("tool_choice") not in (None, "none", "auto"):
        raise FieldError("tool_choice: tools are not supported here", "tool_choice")
    response_format = optional(body, "response_format", dict) or {"type": "text"}
    if response_format.get("type") != "text":
        raise FieldError('response_format: only {"type": "text"} is supported here', "response_format")
    modalities = optional(body, "modalities", list)
    if modalities not in (None, ["text"]):
        raise FieldError('modalities: only ["text"] is supported here', "modalities")


def service_tier(body: dict[str, Any]) -> str | None:
    """The QoS class for OpenAI's service tier: `flex` trades speed for price; the rest is the unit's own."""
    tier = optional(body, "service_tier", str)
    if tier not in (None, "auto", "default", "flex", "scale", "priority"):
        raise FieldError(
            f"service_tier: expected auto, default, flex or priority, found '{tier}'", "service_tier"
        )
    return "batch" if tier == "flex" else None


def include_usage(body: dict[str, Any]) -> bool:
    """Whether a stream ends with a chunk of usage."""
    options = optional(body, "stream_options", dict) or {}
    return optional(options, "include_usage", bool) or False


def _stops(value: Any) -> list[str] | None:
    if value is None:
        return None
    stops = [value] if isinstance(value, str) else value
    fits = isinstance(stops, list) and len(stops) <= MAX_STOPS
    if not fits or not all(isinstance(stop, str) and stop for stop in stops):
        raise FieldError(f"stop: expected a string, or up to {MAX_STOPS} strings, none of them empty", "stop")
    return list(stops) or None
