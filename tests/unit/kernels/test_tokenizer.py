"""Text and tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from hailmesh.hail.errors import Denied, ImageError, TooLarge, UsageError
from hailmesh.kernels.tokenizer import MAX_TEXT, Tokenizer

TEXT = "Grüße, 世界! 😀 <|im_end|> it's 42 <think>\n\t end"
Write = Callable[..., Path]


def library() -> Library:
    """Byte-level, one token a byte and a few merged ones, two special tokens and one that is merely added."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    merges = [("e", "n"), ("en", "d"), ("Ġ", "end"), ("i", "t")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    made = Library(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in ("<|im_start|>", "<|im_end|>")])
    made.add_tokens([AddedToken("<think>", special=False)])
    return made


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(change: Callable[[Any], None] = lambda document: None) -> Path:
        document = json.loads(library().to_str())
        change(document)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(document))
        return path

    return write


@pytest.fixture
def tokenizer(write: Write) -> Tokenizer:
    return Tokenizer(write())


def test_text_comes_back_as_it_was(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


@pytest.mark.parametrize("name", ["<|im_start|>", "<|im_end|>", "<think>"])
def test_no_token_with_a_name_is_ever_read_out_of_text(tokenizer: Tokenizer, name: str) -> None:
    token = tokenizer.token(name)
    assert token is not None
    ids = tokenizer.encode(f"a{name}b {name}\n{name}{name}")
    assert token not in ids
    assert tokenizer.decode(ids) == f"a{name}b {name}\n{name}{name}"


def test_tokens_are_found_by_their_exact_name(tokenizer: Tokenizer) -> None:
    assert tokenizer.token("<|im_end|>") == library().token_to_id("<|im_end|>")
    assert tokenizer.token("<|im_end|") is None
    assert tokenizer.token("") is None


def test_special_tokens_are_left_out_of_text_and_merely_added_ones_shown(tokenizer: Tokenizer) -> None:
    names = ("<|im_start|>", "<think>", "<|im_end|>")
    start, think, end = (tokenizer.token(name) for name in names)
    assert tokenizer.decode([start, *tokenizer.encode("hi"), think, end]) == "hi<think>"


def test_bytes_of_more_tokens_begin_with_those_of_fewer(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    for count in range(len(ids)):
        assert TEXT.encode().startswith(tokenizer.decode_bytes(ids[:count]))
    assert tokenizer.decode_bytes(ids) == TEXT.encode()


def test_an_unfinished_character_shows_as_a_replacement_at_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀")
    assert tokenizer.decode(ids[:3]) == "a\N{REPLACEMENT CHARACTER}"
    assert tokenizer.decode(ids) == "a😀"


def test_ids_without_a_token_give_nothing_and_what_is_no_id_is_refused(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([10**6]) == ""
    for wrong in (-1, 2**31):
        with pytest.raises(UsageError, match=str(wrong)):
            tokenizer.decode([wrong])


def test_text_beyond_the_limit_is_too_large(tokenizer: Tokenizer) -> None:
    with pytest.raises(TooLarge, match=str(MAX_TEXT)):
        tokenizer.encode("a" * (MAX_TEXT + 1))
    with pytest.raises(TooLarge):
        tokenizer.encode("ü" * (MAX_TEXT // 2 + 1))


def test_text_that_is_no_unicode_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError):
        tokenizer.encode("a\ud800")


def test_a_panic_of_the_native_code_is_a_usage_error(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    class Panicking:
        def encode_batch_fast(self, *_: Any, **__: Any) -> Any:
            raise PanicException("index out of bounds\nstack")

    monkeypatch.setattr(tokenizer, "_tokenizer", Panicking())
    with pytest.raises(UsageError, match=r"index out of bounds$"):
        tokenizer.encode("a")


def test_a_descriptor_is_read_from_its_start_and_stays_open(write: Write) -> None:
    with write().open("rb") as file:
        file.read(10)
        assert Tokenizer(file.fileno()).decode(Tokenizer(file.fileno()).encode("hi")) == "hi"


def test_a_byte_fallback_tokenizer_decodes_through_its_decoder(write: Write, tmp_path: Path) -> None:
    vocabulary = {
        "<unk>": 0,
        "▁hi": 1,
        "▁": 2,
        "h": 3,
        "i": 4,
        **{f"<0x{byte:02X}>": byte + 5 for byte in range(256)},
    }
    made = Library(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    path = tmp_path / "fallback.json"
    path.write_text(made.to_str())
    tokenizer = Tokenizer(path)
    assert tokenizer.decode([1, *(byte + 5 for byte in "é".encode())]) == " hié"


def test_padding_truncation_templates_and_dropout_are_ignored(write: Write, tokenizer: Tokenizer) -> None:
    def change(document: Any) -> None:
        document["padding"] = {
            "strategy": {"Fixed": 10**9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "!",
        }
        document["truncation"] = {
            "max_length": 1,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }
        document["model"]["dropout"] = 0.9

    assert Tokenizer(write(change)).encode(TEXT) == tokenizer.encode(TEXT)


HOSTILE = r"(a+)+$"


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("key", "part", "told"),
    [
        ("pre_tokenizer", split(HOSTILE), "regular expression"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [split(HOSTILE)]}, "regular expression"),
        (
            "normalizer",
            {"type": "Replace", "pattern": {"Regex": HOSTILE}, "content": ""},
            "regular expression",
        ),
        ("normalizer", {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 999}, "inflate"),
        ("normalizer", {"type": "Prepend", "prepend": "a" * 999}, "inflate"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "Precompiled"),
        ("pre_tokenizer", {"type": "Custom"}, "Custom"),
        ("decoder", {"type": "CTC"}, "CTC"),
        ("decoder", {"type": "Replace", "pattern": {"Regex": HOSTILE}, "content": ""}, "regular expression"),
        ("model", {"type": "Neural"}, "Neural"),
    ],
)
def test_parts_that_are_not_known_to_be_harmless_are_denied(
    write: Write, key: str, part: Any, told: str
) -> None:
    with pytest.raises(Denied, match=told):
        Tokenizer(write(lambda document: document.update({key: part})))


def test_a_known_regular_expression_passes(write: Write) -> None:
    known = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    part = {"type": "Sequence", "pretokenizers": [split(known), byte_level]}
    tokenizer = Tokenizer(write(lambda document: document.update(pre_tokenizer=part)))
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"model": 3}', '{"model": {"type": "BPE", "vocab": 7}}']
)
def test_what_is_no_tokenizer_is_an_image_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ImageError):
        Tokenizer(path)


@pytest.mark.parametrize(
    "added", [[{"id": 1}], [{"id": "1", "content": "x"}], [{"id": 1, "content": ""}], ["x"]]
)
def test_malformed_added_tokens_are_an_image_error(write: Write, added: list[Any]) -> None:
    with pytest.raises(ImageError, match="added_tokens"):
        Tokenizer(write(lambda document: document.update(added_tokens=added)))
