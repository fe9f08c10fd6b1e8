"""Configuration: one TOML file, one frozen dataclass, HAILMESH_* overrides; unknown keys are errors."""

from __future__ import annotations

import difflib
import os
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hailmesh.hail.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "HAILMESH_"
CLIENT_VARIABLES = {"HAILMESH_CONFIG", "HAILMESH_URL", "HAILMESH_TOKEN", "HAILMESH_API_KEY"}
"""Read by the command line, not settings of the node."""

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def default_state() -> Path:
    """Where the node keeps its store, caches and secrets unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "hailmesh"


def parse_size(text: str | int, *, of: int | None = None) -> int:
    """Bytes from `64MiB`, `1.5 GB`, `65536`, or, where `of` is given, `25%` of it."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|([kmg]i?)?b?)\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"'{text}' is not a size: write it like 64MiB, 1.5GB or 25%")
    number, suffix, unit = float(match[1]), match[2], (match[3] or "").lower()
    if suffix == "%":
        if of is None:
            raise UsageError(f"'{text}': a percentage has no meaning here, write bytes like 64MiB")
        return int(of * number / 100)
    return int(number * _UNITS[unit])


@dataclass(frozen=True, slots=True)
class Config:
    """All the settings of a node.

    Sizes are strings as `parse_size` reads them. `device`: an adapter's name, or `auto`. `lanes`: `wide` lets
    every unit use all cores, `partitioned` keeps some for urgent units alone. `threads`: per executor, 0 for
    what the lane has. `spin`: the threads of a wide lane wait for one another busily for a moment before they
    sleep; faster, for some more CPU time. `drain`: seconds that running requests get when a version goes.
    """

    state: Path = field(default_factory=default_state)
    host: str = "127.0.0.1"
    port: int = 8080
    arena: str = "25%"
    max_body: str = "64MiB"
    device: str = "auto"
    lanes: str = "wide"
    threads: int = 0
    spin: bool = True
    queue: int = 64
    api_keys: tuple[str, ...] = ()
    drain: float = 30.0
    log_level: str = "info"

    def __post_init__(self) -> None:
        _choice("lanes", self.lanes, ("wide", "partitioned"))
        _choice("log_level", self.log_level, ("debug", "info", "warning", "error"))
        if not 0 <= self.port < 65536:
            raise UsageError(f"port: expected 0 to 65535 (0 picks a free one), found {self.port}")
        if self.queue < 1:
            raise UsageError(f"queue: expected at least 1 place, found {self.queue}")
        if self.threads < 0:
            raise UsageError(f"threads: expected 0 (as the lane has) or more, found {self.threads}")
        parse_size(self.arena, of=1 << 30)
        parse_size(self.max_body)
        if not self.loopback and not self.api_keys:
            raise UsageError(
                f"host {self.host} is reachable from other machines: set api_keys, or listen on 127.0.0.1"
            )

    @property
    def loopback(self) -> bool:
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def store(self) -> Path:
        return self.state / "store"

    @property
    def artifacts(self) -> Path:
        return self.state / "artifacts"

    @property
    def max_body_bytes(self) -> int:
        return parse_size(self.max_body)


def _choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{key}: expected one of {', '.join(choices)}, found '{value}'")


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ, **overrides: Any) -> Config:
    """The configuration from a file, then the environment, then `overrides` (None: not given)."""
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_read(path))
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable not in CLIENT_VARIABLES:
            values[variable[len(PREFIX) :].lower()] = text
    values.update({key: value for key, value in overrides.items() if value is not None})
    return Config(**{key: _convert(key, value) for key, value in values.items()})


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return document
    except FileNotFoundError:
        raise UsageError(f"no configuration file at {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _convert(key: str, value: Any) -> Any:
    """`value` as the field's type, or a UsageError that names the key."""
    kinds = typing.get_type_hints(Config)
    if key not in kinds:
        near = difflib.get_close_matches(key, kinds, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(kinds)}"
        raise UsageError(f"unknown setting '{key}'{hint}")
    kind = kinds[key]
    try:
        if kind is Path:
            return Path(value).expanduser()
        if isinstance(kind, types.GenericAlias):
            items = value.split(",") if isinstance(value, str) else value
            return tuple(str(item).strip() for item in items if str(item).strip())
        if kind is bool:
            return _flag(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError
        return kind(value)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: expected {getattr(kind, '__name__', kind)}, found {value!r}") from None


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]
