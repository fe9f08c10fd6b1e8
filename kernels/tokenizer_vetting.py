"""What a tokenizer.json may hold before native code builds a tokenizer from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from hailmesh.hail.errors import Denied, ImageError

_MODELS = frozenset({"BPE", "WordPiece", "WordLevel", "Unigram"})
_NORMALIZERS = frozenset(
    {
        "BertNormalizer",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Prepend",
        "Replace",
        "Sequence",
        "Strip",
        "StripAccents",
    }
)
_PRE_TOKENIZERS = frozenset(
    {
        "BertPreTokenizer",
        "ByteLevel",
        "Digits",
        "Metaspace",
        "Punctuation",
        "Sequence",
        "Split",
        "UnicodeScripts",
        "Whitespace",
        "WhitespaceSplit",
    }
)
_DECODERS = frozenset(
    {
        "BPEDecoder",
        "ByteFallback",
        "ByteLevel",
        "Fuse",
        "Metaspace",
        "Replace",
        "Sequence",
        "Strip",
        "WordPiece",
    }
)
_PARTS = (("normalizer", _NORMALIZERS), ("pre_tokenizer", _PRE_TOKENIZERS), ("decoder", _DECODERS))

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REGEXES = frozenset(
    {
        # GPT-2 and its kin
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # Llama 3, with up to three digits together; Qwen 2, with single ones
        _CONTRACTIONS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        _CONTRACTIONS + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        " {2,}",
        r"\d",
        r"\s+",
    }
)
"""Patterns whose matching takes time proportional to the text. Another one is added here after it was tried
against long runs of every character class it names."""

_MAX_LITERAL = 32
_MAX_PARTS = 32


def vet(raw: bytes) -> dict[str, Any]:
    """The file as a document that is safe to build from. ImageError if it isn't a tokenizer file, Denied
    (with the part's name) if it holds what isn't allowed."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ImageError(f"the tokenizer file is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ImageError("the tokenizer file is not of the tokenizer.json format: it has no model")
    # Padding could ask for any length; truncation and templates are the caller's business; dropout would
    # make the same text come out differently each time.
    document.update(padding=None, truncation=None, post_processor=None)
    model = document["model"]
    if model.get("dropout") is not None:
        model["dropout"] = None
    if model.get("type", "BPE") not in _MODELS:
        raise Denied(f"tokenizer model {model.get('type')!r} is none of {', '.join(sorted(_MODELS))}")
    for key, allowed in _PARTS:
        for part in _flatten(document.get(key), key):
            if part.get("type") not in allowed:
                raise Denied(f"tokenizer {key} {part.get('type')!r} is none of {', '.join(sorted(allowed))}")
            _check_part(part, key)
    _check_added(document.get("added_tokens"))
    return document


def _flatten(part: Any, key: str) -> Iterator[dict[str, Any]]:
    waiting = [part] if part is not None else []
    seen = 0
    while waiting:
        part = waiting.pop()
        seen += 1
        if not isinstance(part, dict) or seen > _MAX_PARTS:
            raise ImageError(f"the tokenizer's {key} is malformed, or has more than {_MAX_PARTS} parts")
        yield part
        for inner in ("normalizers", "pretokenizers", "decoders"):
            waiting += part.get(inner) or []


def _check_part(part: dict[str, Any], key: str) -> None:
    for field in ("content", "prepend", "replacement"):
        literal = part.get(field, "")
        if isinstance(literal, str) and len(literal) > _MAX_LITERAL:
            raise Denied(f"tokenizer {key}: a literal of {len(literal)} characters would inflate every text")
    pattern = part.get("pattern")
    if isinstance(pattern, dict) and "Regex" in pattern and pattern["Regex"] not in REGEXES:
        raise Denied(f"tokenizer {key}: the regular expression {pattern['Regex']!r} is not of the known ones")


def _check_added(added: Any) -> None:
    for token in added or []:
        named = isinstance(token, dict) and isinstance(token.get("content"), str)
        if not named or not token["content"] or type(token.get("id")) is not int:
            raise ImageError("the tokenizer's added_tokens each need an id and a content")
