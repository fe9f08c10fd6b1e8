"""Compiling modules apart, and keeping what came out."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from hailmesh.hail.errors import Denied, ImageError
from hailmesh.sandboxes import aot, compile, engine
from hailmesh.sandboxes.aot import ArtifactCache
from hailmesh.sandboxes.module import LinkedModule


@pytest.fixture
def opened() -> Iterator[Callable[[bytes], int]]:
    """Descriptors of bytes, closed at the end."""
    fds: list[int] = []

    def make(content: bytes) -> int:
        fds.append(os.memfd_create("wasm"))
        os.write(fds[-1], content)
        return fds[-1]

    yield make
    for fd in fds:
        os.close(fd)


@pytest.fixture
def good(guest: Any) -> bytes:
    return bytes(guest.wasm(f"(call $reply {guest.text('ok')})"))


def test_a_module_is_compiled_once_and_serves(
    box: Any, good: bytes, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArtifactCache(tmp_path / "artifacts")
    os.close(cache.open("sha256:a", opened(good)))
    monkeypatch.setattr(aot, "_run_child", lambda *_: pytest.fail("compiled a second time"))
    native = ArtifactCache(tmp_path / "artifacts").open("sha256:a", opened(b"not even read"))
    try:
        assert box.handle(LinkedModule(native)).reply == b"ok"
    finally:
        os.close(native)
    assert [path.suffix for path in (tmp_path / "artifacts").iterdir()] == [".cwasm"]


def test_it_can_be_awaited(good: bytes, opened: Any, tmp_path: Path) -> None:
    native = asyncio.run(ArtifactCache(tmp_path).native("sha256:a", opened(good)))
    assert os.fstat(native).st_size > 1000
    os.close(native)


def test_another_module_another_artifact(good: bytes, opened: Any, tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    for digest in ("sha256:a", "sha256:b"):
        os.close(cache.open(digest, opened(good)))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_engine_another_artifact(
    good: bytes, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArtifactCache(tmp_path)
    os.close(cache.open("sha256:a", opened(good)))
    monkeypatch.setattr(engine, "fingerprint", lambda: "other")
    os.close(cache.open("sha256:a", opened(good)))
    assert len(list(tmp_path.iterdir())) == 2


def test_an_artifact_that_was_changed_is_made_again(
    box: Any, good: bytes, opened: Any, tmp_path: Path
) -> None:
    cache = ArtifactCache(tmp_path)
    os.close(cache.open("sha256:a", opened(good)))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    native = cache.open("sha256:a", opened(good))
    try:
        assert box.handle(LinkedModule(native)).reply == b"ok"
    finally:
        os.close(native)


def test_two_who_want_the_same_compile_it_once(
    good: bytes, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, compiled, child = ArtifactCache(tmp_path), [], aot._run_child
    monkeypatch.setattr(aot, "_run_child", lambda *fds: (compiled.append(fds), child(*fds)))
    wasm = opened(good)
    threads = [threading.Thread(target=lambda: os.close(cache.open("sha256:a", wasm))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_a_folder_that_others_can_write_is_not_trusted(good: bytes, opened: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(Denied, match="0700"):
        ArtifactCache(tmp_path).open("sha256:a", opened(good))


def test_a_failed_compilation_leaves_nothing_behind(opened: Any, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no wasm"):
        ArtifactCache(tmp_path).open("sha256:a", opened(b"GIF89a"))
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_dies_is_an_image_error(
    good: bytes, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aot.sys, "executable", "/bin/false")
    with pytest.raises(ImageError, match="compiler ended with 1"):
        ArtifactCache(tmp_path).open("sha256:a", opened(good))
    assert list(tmp_path.iterdir()) == []


EXPORTS = """(memory (export "memory") 1) (func (export "_initialize"))
(func (export "mesh_abi") (result i32) (i32.const 1))
(func (export "mesh_reserve") (param i32) (result i32) (i32.const 0))
(func (export "mesh_handle") (result i32) (i32.const 0))"""


def module(text: str = "", exports: str = EXPORTS) -> bytes:
    return bytes(wat2wasm(f"(module {text} {exports})"))


@pytest.mark.parametrize(
    ("wasm", "words"),
    [
        (b"", "no wasm"),
        (b"\x7fELF", "no wasm"),
        (b"\0asm\x0d\0\x01\0", "component"),
        (module()[:60], "cut short|not valid"),
        (module()[:-3], "cut short|not valid"),
        (module() + b"\x01\xff", "cut short|not valid"),
        (module("(func $f) (start $f)"), "start function"),
        (module('(import "env" "evil" (func))'), "imports env.evil"),
        (module('(import "mesh_v1" "nothing" (func))'), "imports mesh_v1.nothing"),
        (module('(import "mesh_v1" "log" (func))'), r"mesh_v1.log has the type \(\) -> \(\)"),
        (module('(import "mesh_v1" "log" (global i32))'), "mesh_v1.log is no function"),
        (module('(import "wasi_snapshot_preview1" "path_open" (func))'), "path_open"),
        (module(exports=""), "doesn't export its memory"),
        (module(exports='(memory (export "memory") 1)'), r"doesn't export _initialize\(\)"),
        (module(exports=EXPORTS.replace("mesh_handle", "x")), r"export mesh_handle\(\); write MESH_UNIT"),
        (module(exports=EXPORTS.replace('"mesh_abi") (result i32)', '"mesh_abi") (result i64)').replace(
            "(result i64) (i32.const 1)", "(result i64) (i64.const 1)")), "mesh_abi has the type"),
        (module("(memory 1) (memory 2)", exports=""), "not valid|multi"),
        (module("(memory i64 1)", exports=""), "not valid|64"),
        (module("(memory 1 1 shared)", exports=""), "not valid|thread|shared"),
        (module("(func (result v128) (f32x4.relaxed_madd (v128.const i64x2 0 0) (v128.const i64x2 0 0)"
                " (v128.const i64x2 0 0)))"), "not valid|relaxed"),
        (module("(func $f (return_call $f))"), "not valid|tail"),
    ],
)  # fmt: skip
def test_a_module_that_is_no_unit_is_refused_with_the_reason(wasm: bytes, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        compile.compile_module(wasm)


def test_native_code_of_another_engine_is_refused(opened: Any) -> None:
    from wasmtime import Engine, Module

    foreign = bytes(Module(Engine(), module()).serialize())
    with pytest.raises(ImageError, match="can't be used here"):
        LinkedModule(opened(foreign))


def test_what_is_no_native_code_is_refused(opened: Any) -> None:
    with pytest.raises(ImageError, match="can't be used here"):
        LinkedModule(opened(b"\x7fELF" + bytes(500)))
