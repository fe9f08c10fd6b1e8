"""Golden cases travel in the image: their inputs as blobs of their own, their expectations in unit.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hailmesh.hail.errors import UsageError
from hailmesh.oci.descriptor import Descriptor
from hailmesh.oci.image import load
from hailmesh.oci.store import Store
from hailmesh.oci.unit import Unit

MINIMAL = {"unit": {"name": "a", "version": "1.0.0", "modality": "text", "guest": "llm"}}

CASES = """
[selftest.voice]
file = "voice.wav"
type = "audio/wav"
params = { stream = false }
expect = [{ path = "text", equals = "hello" }]

[selftest.words]
text = "say hello"
expect = [{ path = "text", contains = "hello" }]
"""


def test_a_case_loads_with_its_input(store: Store, make: Callable[[], Descriptor], unit_folder: Path) -> None:
    (unit_folder / "voice.wav").write_bytes(b"RIFF")
    toml = unit_folder / "unit.toml"
    toml.write_text(toml.read_text() + CASES)
    voice, words = load(store, make().digest).selftest
    assert voice.file is not None
    assert store.read(voice.file) == b"RIFF"
    assert (voice.name, voice.media_type, voice.params) == ("voice.wav", "audio/wav", {"stream": False})
    assert (words.file, words.text, words.media_type) == (None, "say hello", "text/plain")
    assert words.expect == ({"path": "text", "contains": "hello"},)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({"expect": [{}]}, "either file or text"),
        ({"text": "a", "file": "b", "expect": [{}]}, "either file or text"),
        ({"file": "b", "expect": [{}]}, "selftest.x.type: expected a string, but it is missing"),
        ({"text": "a", "expect": []}, "a case that expects nothing"),
        ({"text": "a"}, "selftest.x.expect: expected a list of tables, but it is missing"),
        ({"text": "a", "expect": [1]}, "expected a list of tables"),
        ({"text": "a", "expect": [{}], "expects": 1}, "did you mean 'expect'"),
    ],
)
def test_a_mistake_in_a_case_is_named(case: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", r"\.")):
        Unit.of({**MINIMAL, "selftest": {"x": case}})
