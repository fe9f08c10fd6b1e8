"""Text to token ids and back, for the graph that a tokenizer belongs to.

The tokenizer file comes from a unit's image and runs as native code on the host, so it is vetted first: only
known parts, no regular expression but those of an allow-list (a hostile one takes exponential time), and
nothing that multiplies its input. The format is that of Hugging Face's `tokenizers` (tokenizer.json).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import orjson

from hailmesh.hail.errors import DeviceError, ImageError, MeshError, TooLarge, UsageError
from hailmesh.kernels.tokenizer_vetting import vet

MAX_TEXT = 1 << 20
"""Bytes of UTF-8 that one call encodes at most."""

_MAX_FILE = 64 << 20
T = TypeVar("T")


class Tokenizer:
    """From a path or an open descriptor. Thread-safe. ImageError if the file is malformed or refused."""

    def __init__(self, source: int | Path) -> None:
        document = vet(_read(source))
        added = document.get("added_tokens") or []
        self._special = {token["id"] for token in added if token.get("special")}
        # Special or not, a token that was added by name must never be read out of text: it may be how a
        # chat template marks who speaks. What isn't special stays visible, since `decode` skips by its own.
        for token in added:
            token["special"] = True
        library = _library()
        self._tokenizer = _guarded(
            lambda: library.from_str(orjson.dumps(document).decode()),
            ImageError,
            "the tokenizer can't be read",
        )
        self._tokenizer.encode_special_tokens = True
        self._bytelevel = (document.get("decoder") or {}).get("type") == "ByteLevel"
        self._added: dict[int, bytes] = {token["id"]: token["content"].encode() for token in added}

    def encode(self, text: str) -> list[int]:
        """The text's tokens, nothing added. Special tokens are never read out of text: `<|im_end|>` becomes
        the tokens of its characters. TooLarge above MAX_TEXT bytes."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_TEXT:
            raise TooLarge(f"one call encodes at most {MAX_TEXT} bytes of text, got {size}")
        # As a batch, since that way other threads run meanwhile, and without offsets.
        encoded = _guarded(
            lambda: self._tokenizer.encode_batch_fast([text], add_special_tokens=False),
            UsageError,
            "the text can't be encoded",
        )
        return list(encoded[0].ids)

    def token(self, name: str) -> int | None:
        """The id of the token of exactly this name, special ones included; None if there is none."""
        found = _guarded(lambda: self._tokenizer.token_to_id(name), UsageError, "no token's name")
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens' text without special tokens. Where a token ends inside a character, its bytes read as
        U+FFFD: more tokens complete it."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """As `decode`, but the bytes themselves, which may end inside a character. Of a byte-level tokenizer
        (all the reference ones are) a prefix of the tokens gives a prefix of the bytes. Ids of no token give
        nothing; UsageError for what can't be an id."""
        for token in ids:
            if not 0 <= token < 2**31:
                raise UsageError(f"token ids lie from 0 to {2**31 - 1}, got {token}")
        shown = [int(token) for token in ids if token not in self._special]
        if not self._bytelevel:
            text = _guarded(
                lambda: self._tokenizer.decode(shown, skip_special_tokens=False),
                UsageError,
                "the tokens can't be decoded",
            )
            return str(text).encode()
        return b"".join(self._bytes_of(token) for token in shown)

    def _bytes_of(self, token: int) -> bytes:
        added = self._added.get(token)
        if added is not None:
            return added
        piece: str = self._tokenizer.id_to_token(token) or ""
        return b"".join(_BYTE_OF.get(character) or character.encode() for character in piece)


def _alphabet() -> dict[str, bytes]:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, the others, in order, for the
    characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): bytes([byte]) for byte in printable}
    return table | {chr(0x100 + index): bytes([byte]) for index, byte in enumerate(others)}


_BYTE_OF = _alphabet()


def _read(source: int | Path) -> bytes:
    path = Path(f"/proc/self/fd/{source}") if isinstance(source, int) else source
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_FILE:
            raise ImageError(f"a tokenizer file has at most {_MAX_FILE} bytes, this one has {size}")
        return os.pread(file.fileno(), size, 0)


@cache
def _library() -> Any:
    # No thread pool of its own: whoever encodes does so on a thread of its lane. Read at each call.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer as Library
    except ImportError as error:
        raise DeviceError(f"text needs the package tokenizers, which can't be imported ({error})") from error
    return Library


def _guarded(call: Callable[[], T], kind: type[MeshError], what: str) -> T:
    """`call()`; its errors, panics of the native code too (BaseExceptions), become `kind`."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{what}: {str(error).partition(chr(10))[0]}") from error
