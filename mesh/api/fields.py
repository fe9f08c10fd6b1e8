"""Typed reading of JSON objects that clients send."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import orjson

from hailmesh.hail.errors import UsageError

T = TypeVar("T")

KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class FieldError(UsageError):
    """One field is wrong; `param` is its name. Elsewhere it is a UsageError like any other."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def parse_object(raw: bytes | bytearray | memoryview, what: str = "the body") -> dict[str, Any]:
    """A JSON object; UsageError if it is anything else."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{what}: expected a JSON object, found {_name(value)}")
    return value


def optional(values: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """A field of that type, None if it is absent or null. FieldError says what it is instead."""
    value = values.get(name)
    if value is None:
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FieldError(f"{name}: expected {KINDS[kind]}, found {_name(value)}", name)
    return value


def required(values: dict[str, Any], name: str, kind: type[T]) -> T:
    value = optional(values, name, kind)
    if value is None:
        raise FieldError(f"{name} is missing: expected {KINDS[kind]}", name)
    return value


def bounded(values: dict[str, Any], name: str, low: float, high: float) -> float | None:
    """A number within bounds, None if absent."""
    value = optional(values, name, float)
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise FieldError(f"{name}: expected a number from {low:g} to {high:g}, found {value:g}", name)
    return value


def counted(values: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """A whole number within bounds, None if absent."""
    value = optional(values, name, int)
    if value is not None and not low <= value <= high:
        raise FieldError(f"{name}: expected a whole number from {low} to {high}, found {value}", name)
    return value


def _name(value: Any) -> str:
    if value is None:
        return "null"
    return KINDS.get(type(value), type(value).__name__)
