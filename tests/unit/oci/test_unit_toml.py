from __future__ import annotations

from pathlib import Path

import pytest

from hailmesh.hail.errors import UsageError
from hailmesh.oci.sections import Graph, Memory, Qos, Run, Source
from hailmesh.oci.unit import Unit

MINIMAL = {"unit": {"name": "ears", "version": "1.0.0", "modality": "speech", "guest": "asr"}}


def change(folder: Path, old: str, new: str) -> Path:
    toml = folder / "unit.toml"
    text = toml.read_text()
    assert old in text
    toml.write_text(text.replace(old, new))
    return toml


def test_a_whole_description_is_read(unit_folder: Path) -> None:
    unit = Unit.load(unit_folder / "unit.toml")
    assert (unit.name, unit.version, unit.modality, unit.guest) == ("ears", "1.2.3", "speech", "guest.wasm")
    assert unit.qos == Qos("realtime", 40, 2.5)
    assert unit.memory == Memory(8 << 20, 1 << 20)
    assert unit.run == Run(3, 2, "urgent")
    assert unit.kernels == ("logmel",)
    assert unit.graphs == {
        "encoder": Graph("encoder.onnx"),
        "decoder": Graph("decoder.onnx", "sequence", "tokenizer.json", 448, 2),
    }
    assert unit.sources["decoder.onnx"] == Source("ears-weights==1.0", "MIT")
    assert unit.config == {"language": "en", "end": 50256}
    assert unit.files() == ("encoder.onnx", "decoder.onnx", "tokenizer.json")


def test_four_lines_are_enough() -> None:
    unit = Unit.of(MINIMAL)
    assert unit.lifetime == "request"
    assert unit.run == Run(slots=1, threads=0, lane="best-effort")
    assert unit.qos == Qos("interactive", 60_000, 1.0)


def test_a_class_brings_its_own_deadline() -> None:
    assert Unit.of({**MINIMAL, "qos": {"class": "realtime"}}).qos.deadline_ms == 33


def test_what_goes_into_the_image_reads_back_as_the_same_unit(unit_folder: Path) -> None:
    unit = Unit.load(unit_folder / "unit.toml")
    again = Unit.of(unit.document())
    assert again.document() == unit.document()
    assert (again.qos, again.graphs, again.config, again.kernels) == (
        unit.qos, unit.graphs, unit.config, unit.kernels,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("slots = 3", "slot = 3", r"run\.slot: unknown key; did you mean 'slots'\?"),
        ("[qos]", "[qoss]", r"qoss: unknown key; did you mean 'qos'\?"),
        ("deadline-ms", "deadline_ms", r"qos\.deadline_ms: unknown key; did you mean 'deadline-ms'\?"),
        ('file = "encoder.onnx"', 'path = "x"', r"graphs\.encoder\.file: .* it is missing"),
        ('"1.2.3"', '"1.2"', r"unit\.version: expected a semantic version such as 1\.0\.0, found '1\.2'"),
        ('"1.2.3"', "1.2", r"unit\.version: expected a string, found a number"),
        ('name = "ears"', 'name = "Ears"', r"unit\.name: expected lower-case letters"),
        ('name = "ears"', "", r"unit\.name: expected a string, but it is missing"),
        ('"realtime"', '"realtme"', r"qos\.class: expected one of .*; did you mean 'realtime'\?"),
        ("deadline-ms = 40", "deadline-ms = 0", r"qos\.deadline-ms: expected 1 to"),
        ("deadline-ms = 40", "deadline-ms = true", r"qos\.deadline-ms: .* found true or false"),
        ("penalty = 2.5", "penalty = -1", r"qos\.penalty: expected a number above 0"),
        ("penalty = 2.5", "penalty = nan", r"qos\.penalty: expected a number above 0"),
        ('"8MiB"', '"8MB"', r'memory\.arena: expected a size like "64MiB"'),
        ('"1MiB"', '"5GiB"', r"memory\.guest: expected 65536 to 4294967296 bytes"),
        ("slots = 3", "slots = 0", r"run\.slots: expected 1 to"),
        ('lane = "urgent"', 'lane = "fast"', r"run\.lane: expected one of urgent, best-effort"),
        ('["logmel"]', '"logmel"', r"grants\.kernels: expected a list of strings"),
        ('["logmel"]', "[1]", r"grants\.kernels: expected a list of strings"),
        ("context = 448", "", r"graphs\.decoder\.context: expected a whole number, but it is missing"),
        ('kind = "sequence"', "", r"graphs\.decoder\.tokenizer: unknown key"),
        ("[graphs.encoder]", '[graphs."en coder"]', r"graphs\.en coder: a graph's name has letters"),
        ('"encoder.onnx"', '"../encoder.onnx"', r"graphs\.encoder\.file: expected the plain path"),
        ('"encoder.onnx"', '"/etc/passwd"', r"graphs\.encoder\.file: expected the plain path"),
        ('"encoder.onnx"', '""', r"graphs\.encoder\.file: expected the plain path"),
        ('["LICENSE"]', '["a/../LICENSE"]', r"unit\.licence-files: expected the plain path"),
        ('sources."decoder.onnx"', 'sources."decodr.onnx"', r"sources\.decodr\.onnx: no such file"),
        ('language = "en"', "end = 1", r"config\.end: stands in more\.json too"),
        ('"more.json"', '"less.json"', r"unit\.config-file: .*less\.json: No such file"),
        ("[unit]", "[unit", r"not valid TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_and_key(unit_folder: Path, old: str, new: str, says: str) -> None:
    toml = change(unit_folder, old, new)
    with pytest.raises(UsageError, match=says) as caught:
        Unit.load(toml)
    assert str(toml) in str(caught.value)
    assert "\n" not in str(caught.value).split("not valid TOML")[0]


def test_a_missing_unit_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unit\.toml: No such file"):
        Unit.load(tmp_path / "unit.toml")


@pytest.mark.parametrize(
    "version", ["1.0.0", "0.0.4", "1.0.0-alpha.1", "1.0.0-0A.is.legal+build.7", "2.0.0+x"]
)
def test_semantic_versions_are_taken(version: str) -> None:
    assert Unit.of({"unit": {**MINIMAL["unit"], "version": version}}).version == version


@pytest.mark.parametrize("version", ["1", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "v1.0.0", "1.0.0\n"])
def test_other_versions_are_not(version: str) -> None:
    with pytest.raises(UsageError, match=r"unit\.version"):
        Unit.of({"unit": {**MINIMAL["unit"], "version": version}})
