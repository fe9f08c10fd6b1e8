"""Strict reading of a table from TOML or JSON: every key is known, every value of its type and range.

Each error is one line with the key's full path, what was expected and what was found; an unknown key is named
with the known one nearest to it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hailmesh.hail.errors import UsageError

T = TypeVar("T")

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MISSING = object()


class Table:
    """One table. Take each field by `text`, `integer`, …, then call `done`: what is left then is unknown.

    A field without a default is required. All methods raise UsageError.
    """

    def __init__(self, content: Any, path: str) -> None:
        if not isinstance(content, Mapping):
            raise UsageError(f"{path}: expected a table, found {_kind(content)}")
        self.path = path
        self._left = dict(content)
        self._known: list[str] = []

    def text(
        self, key: str, default: Any = _MISSING, *, pattern: re.Pattern[str] | None = None, like: str = ""
    ) -> str:
        """A string; `like` shows what the pattern wants."""
        value: str = self._take(key, default, str, "a string")
        if pattern is not None and value != default and not pattern.fullmatch(value):
            raise self.error(key, f"expected {like}, found {value!r}")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> str:
        """One of a few words."""
        value: str = self._take(key, default, str, "a string")
        if value not in choices:
            raise self.error(
                key, f"expected one of {', '.join(choices)}, found {value!r}{_nearest(value, choices)}"
            )
        return value

    def integer(self, key: str, default: Any = _MISSING, *, least: int = 0, most: int = 1 << 40) -> int:
        """A whole number from `least` to `most`."""
        value: int = self._take(key, default, int, "a whole number")
        if not least <= value <= most:
            raise self.error(key, f"expected {least} to {most}, found {value}")
        return value

    def number(self, key: str, default: Any = _MISSING, *, above: float = 0.0, most: float = 1e9) -> float:
        """A number greater than `above`, at most `most`."""
        value = float(self._take(key, default, (int, float), "a number"))
        if not above < value <= most:
            raise self.error(key, f"expected a number above {above:g}, at most {most:g}, found {value:g}")
        return value

    def size(self, key: str, default: Any = _MISSING, *, least: int = 1, most: int = 1 << 40) -> int:
        """Bytes, given as a number or as a string like "64MiB"."""
        value = self._take(key, default, (int, str), 'a size like "64MiB"')
        if isinstance(value, str):
            match = _SIZE.fullmatch(value)
            if match is None:
                raise self.error(key, f'expected a size like "64MiB" (B, KiB, MiB, GiB), found {value!r}')
            value = int(match[1]) * _UNITS[match[2]]
        if not least <= value <= most:
            raise self.error(key, f"expected {least} to {most} bytes, found {value}")
        return int(value)

    def texts(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        """A list of strings, none of them empty."""
        value = self._take(key, default, (list, tuple), "a list of strings")
        if not all(isinstance(item, str) and item for item in value):
            raise self.error(key, f"expected a list of strings, found {value!r}")
        return tuple(value)

    def table(self, key: str, default: Any = _MISSING) -> Table:
        """A table inside this one."""
        return Table(self._take(key, default, Mapping, "a table"), self._at(key))

    def mapping(self, key: str, default: Any = _MISSING) -> dict[str, Any]:
        """A table that is taken as it is."""
        return dict(self._take(key, default, Mapping, "a table"))

    def tables(self, key: str, default: Any = _MISSING) -> list[dict[str, Any]]:
        """A list of tables, each taken as it is."""
        value = self._take(key, default, (list, tuple), "a list of tables")
        if not all(isinstance(item, Mapping) for item in value):
            raise self.error(key, f"expected a list of tables, found {value!r}")
        return [dict(item) for item in value]

    def each(self, key: str, default: Any = _MISSING, *, read: Callable[[str, Table], T]) -> dict[str, T]:
        """A table of tables, each read by `read(name, table)`."""
        inner = self.mapping(key, default)
        return {
            name: read(name, Table(content, self._at(f"{key}.{name}"))) for name, content in inner.items()
        }

    def done(self) -> None:
        """Nothing must be left."""
        for key in self._left:
            raise UsageError(f"{self._at(key)}: unknown key{_nearest(key, self._known)}")

    def error(self, key: str, message: str) -> UsageError:
        """An error about one of the fields."""
        return UsageError(f"{self._at(key)}: {message}")

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _take(self, key: str, default: Any, kind: type | tuple[type, ...], name: str) -> Any:
        self._known.append(key)
        value = self._left.pop(key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                raise self.error(key, f"expected {name}, but it is missing")
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(key, f"expected {name}, found {_kind(value)}")
        return value


def _kind(value: Any) -> str:
    names = {bool: "true or false", str: "a string", int: "a whole number", float: "a number", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, Mapping) else type(value).__name__)


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
