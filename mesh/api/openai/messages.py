"""A chat's messages, checked and brought into the form that language units take."""

from __future__ import annotations

from typing import Any

from hailmesh.mesh.api.fields import FieldError

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_MESSAGES = 1024


def messages(value: Any) -> list[dict[str, str]]:
    """Role and text of each message. FieldError names the one that is wrong, like messages[2].content."""
    if not isinstance(value, list) or not value:
        raise FieldError("messages: expected a list with at least one message", "messages")
    if len(value) > MAX_MESSAGES:
        raise FieldError(f"messages: at most {MAX_MESSAGES}, found {len(value)}", "messages")
    return [_message(entry, f"messages[{index}]") for index, entry in enumerate(value)]


def _message(entry: Any, where: str) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise FieldError(f"{where}: expected an object with role and content", where)
    role = entry.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{where}.role: expected one of {', '.join(ROLES)}, found {role!r}", f"{where}.role")
    return {"role": ROLES[role], "content": _content(entry.get("content"), f"{where}.content")}


def _content(value: Any, where: str) -> str:
    """A string, or the text of parts one after the other."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise FieldError(f"{where}: expected a string or a list of parts", where)
    pieces = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise FieldError(f"{where}: this model takes text parts only, found {kind!r}", where)
        if not isinstance(part.get("text"), str):
            raise FieldError(f"{where}: a text part needs a text", where)
        pieces.append(part["text"])
    return "".join(pieces)
