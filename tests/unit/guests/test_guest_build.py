"""The guests as modules, and how they are built and their third-party sources brought."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest
from wasmtime import Engine, Module

from hailmesh.hail.errors import ImageError, NotFound, UsageError
from hailmesh.sandboxes.abi import check_binary
from hailmesh.sandboxes.guests import build, built, sources
from hailmesh.sandboxes.guests.sources import Source

ALLOWED = {"fd_write", "fd_close", "fd_seek", "fd_fdstat_get", "proc_exit", "clock_time_get", "random_get"}
REPOSITORY = Path(__file__).resolve().parents[3]
KIB = 1 << 10


@pytest.mark.parametrize("name", built.NAMES)
def test_a_guest_is_small_and_asks_for_little(name: str) -> None:
    wasm = built.find(name).read_bytes()
    check_binary(wasm)
    module = Module(Engine(), wasm)
    imports = {(each.module, each.name) for each in module.imports if each.module != "mesh_v1"}
    assert imports <= {("wasi_snapshot_preview1", call) for call in ALLOWED}
    assert len(wasm) < 400 * KIB
    (memory,) = (each.type for each in module.exports if each.name == "memory")
    assert memory.limits.min <= 16, "64 KiB pages that every fresh sandbox has at least"


def test_what_isnt_built_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(built, "FOLDER", tmp_path)
    with pytest.raises(
        NotFound, match=r"'llm' isn't built: run python -m hailmesh\.sandboxes\.guests\.build"
    ):
        built.find("llm")
    with pytest.raises(NotFound, match="no generic guest 'smell'; there are vision, llm, asr"):
        built.path("smell")


def test_all_that_is_compiled_in_has_its_notice() -> None:
    notices = (built.FOLDER / "third-party.txt").read_text()
    for name in (
        "yyjson (MIT)",
        "miniaudio (MIT-0)",
        "stb_image (MIT)",
        "musl, parts of the C library (MIT)",
    ):
        assert name in notices
    for author in ("YaoYuan", "David Reid", "Sean Barrett", "Rich Felker"):
        assert author in notices


def archive(folder: Path, **files: str) -> Source:
    """A source distribution `thing-1.0` in a downloads folder."""
    folder.mkdir(exist_ok=True)
    path = folder / "thing-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"thing-1.0/src/{name}.h")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return Source(
        "thing",
        files=("src/a.h",),
        licence="MIT",
        notice="first",
        package="thing==1.0",
        archive=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def test_sources_come_out_of_an_archive_that_is_there(tmp_path: Path) -> None:
    source = archive(tmp_path / "downloads", a="/* Mine. */ int a; /* Last. */", b="int b;")
    sources.fetch(source, tmp_path / "downloads", tmp_path / "into")
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["a.h"]
    assert source.notice_in(tmp_path / "into") == "Mine."


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    source = archive(tmp_path / "downloads", b="int b;")
    with pytest.raises(ImageError, match=r"thing-1\.0\.tar\.gz holds no src/a\.h"):
        sources.fetch(source, tmp_path / "downloads", tmp_path / "into")


def test_an_archive_that_differs_from_its_pin_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is asked for anew; without an index, that fails in one line."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    source = archive(tmp_path / "downloads", a="int a;")
    (tmp_path / "downloads" / source.archive).write_bytes(b"something else")
    with pytest.raises(NotFound, match=r"^thing==1\.0 could not be downloaded: [^\n]+$"):
        sources.fetch(source, tmp_path / "downloads", tmp_path / "into")
    assert not (tmp_path / "into" / "a.h").exists()


def test_installed_sources_are_taken_and_another_version_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = tmp_path / "include"
    installed.mkdir()
    (installed / "a.h").write_text("int a;")
    digest = hashlib.sha256(b"int a;").hexdigest()

    def fetch(tested: str) -> str:
        source = Source(
            "a", ("a.h",), "MIT", "last", debian="liba-dev", installed=str(installed), tested=(tested,)
        )
        sources.fetch(source, tmp_path / "downloads", tmp_path / "into")
        assert (tmp_path / "into" / "a.h").read_text() == "int a;"
        return capsys.readouterr().err

    assert fetch(digest) == ""
    assert "a.h of liba-dev is another version than the tested one" in fetch("0" * 64)


def test_every_source_is_pinned() -> None:
    for source in sources.known():
        assert (source.sha256 and source.archive) or (source.tested and source.installed)
        assert set(source.guests) <= set(built.NAMES)


def test_without_the_compiler_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the package ziglang: install hailmesh\[build\]"):
        build.build(["llm"], tmp_path, tmp_path, tmp_path)


def test_an_unknown_guest_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no generic guest 'smell'"):
        build.build(["smell"], tmp_path, tmp_path, tmp_path)


@pytest.fixture
def cache() -> Path:
    """What the repository's own build left: with it, the C library need not be compiled again."""
    folder = REPOSITORY / "build" / "guests"
    if not (folder / "zig").is_dir():
        pytest.skip("the guests weren't built here, and the C library alone takes minutes")
    return folder


@pytest.mark.slow  # compiles a guest anew
def test_the_same_sources_give_the_same_bytes_anywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for folder in ("guests/llm", "guests/common", "sdk"):
        shutil.copytree(REPOSITORY / "sandboxes" / folder, elsewhere / folder)
    monkeypatch.setattr(build, "_HERE", elsewhere / "guests")
    monkeypatch.setattr(build, "_SDK", elsewhere / "sdk")
    made = build.build(["llm"], tmp_path / "out", cache, cache.parent / "downloads")
    assert made["llm"].read_bytes() == built.find("llm").read_bytes()


def test_code_that_doesnt_compile_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    for folder in ("llm", "common"):
        (tmp_path / folder).mkdir()
    (tmp_path / "llm" / "llm.c").write_text("int x = nonsense;\n")
    monkeypatch.setattr(build, "_HERE", tmp_path)
    monkeypatch.setattr(sources, "known", list)
    with pytest.raises(UsageError, match=r"(?s)'llm' doesn't compile:.*nonsense"):
        build.build(["llm"], tmp_path / "out", cache, tmp_path / "downloads")
    assert list((tmp_path / "out").iterdir()) == []
