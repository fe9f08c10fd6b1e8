"""A GGUF file's byte-level BPE vocabulary as the `tokenizer.json` that the tokenizers library reads.

Written by hand rather than through the library, so that the file, and with it the image's digest, doesn't
depend on the library's version.
"""

from __future__ import annotations

import json
from typing import Any

from hailmesh.hail.errors import ImageError
from hailmesh.oci.convert.gguf import Gguf

_CONTROL = 3
"""tokenizer.ggml.token_type of special tokens such as <|im_end|>."""

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    "gpt-2": [_BYTE_LEVEL],
}
"""Known values of tokenizer.ggml.pre. Others are refused: a wrong split would only show in worse answers."""


def from_gguf(model: Gguf) -> bytes:
    """tokenizer.json, UTF-8. ImageError if the vocabulary isn't byte-level BPE of a known splitting."""
    kind, split = model["tokenizer.ggml.model"], model["tokenizer.ggml.pre"]
    if kind != "gpt2" or split not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise ImageError(f"the vocabulary is {kind!r} split by {split!r}; known are 'gpt2' split by {known}")
    tokens: list[str] = model["tokenizer.ggml.tokens"]
    kinds = model["tokenizer.ggml.token_type"]
    special = [
        {
            "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == _CONTROL
    ]  # fmt: skip
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[split]},
        "post_processor": None,
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in model["tokenizer.ggml.merges"]],
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
