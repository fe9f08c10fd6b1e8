"""What a module must look like to be a unit: checked before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wasmtime import FuncType, MemoryType

from hailmesh.hail.errors import ImageError
from hailmesh.sandboxes.bridge import CALLS

_MAGIC = b"\0asm\x01\0\0\0"
_START_SECTION = 8

EXPORTS = {
    "_initialize": ((), ()),
    "mesh_abi": ((), ("i32",)),
    "mesh_reserve": (("i32",), ("i32",)),
    "mesh_handle": ((), ("i32",)),
}
"""Functions a unit exports: parameters, results."""

_LETTERS = {"i": "i32", "I": "i64"}
_IMPORTS = {
    (call.module, call.name): (
        tuple(_LETTERS[letter] for letter in call.parameters),
        tuple(_LETTERS[letter] for letter in call.result),
    )
    for call in CALLS
}


def check_binary(wasm: bytes) -> None:
    """ImageError unless these are the bytes of a core wasm module without a start function. A start function
    would run before a deadline is set; a reactor has `_initialize` for that."""
    if wasm[:8] != _MAGIC:
        kind = "a component; units are core modules" if wasm[:4] == _MAGIC[:4] else "no wasm"
        raise ImageError(f"the unit's code is {kind}: expected a wasm module of version 1")
    if any(number == _START_SECTION for number in _sections(wasm)):
        raise ImageError("the unit's code has a start function; export _initialize() instead")


def _sections(wasm: bytes) -> Iterator[int]:
    """The ids of a module's sections. Format: WebAssembly core specification, 5.5.2."""
    at = len(_MAGIC)
    while at < len(wasm):
        yield wasm[at]
        size, at = _leb128(wasm, at + 1)
        at += size


def _leb128(wasm: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(wasm) and shift < 35:
        byte = wasm[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ImageError("the unit's code is cut short, or isn't wasm")


def check_interface(imports: list[Any], exports: list[Any]) -> None:
    """ImageError unless a compiled module (wasmtime's ImportTypes and ExportTypes) imports only what the
    bridge offers, and exports what the unit ABI asks for, with the right types."""
    for wanted in imports:
        name = f"{wanted.module}.{wanted.name}"
        offered = _IMPORTS.get((wanted.module, wanted.name or ""))
        if offered is None:
            raise ImageError(
                f"the unit imports {name}, which units don't get; see mesh_v1.h for what they do"
            )
        _check_type(f"import {name}", wanted.type, offered)
    exported = {export.name: export.type for export in exports}
    if not isinstance(exported.get("memory"), MemoryType):
        raise ImageError("the unit doesn't export its memory as 'memory'")
    for name, signature in EXPORTS.items():
        if name not in exported:
            hint = "; write MESH_UNIT in one source file" if name.startswith("mesh_") else ""
            raise ImageError(f"the unit doesn't export {name}(){hint}")
        _check_type(f"export {name}", exported[name], signature)


def _check_type(what: str, found: Any, expected: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    if not isinstance(found, FuncType):
        raise ImageError(f"{what} is no function")
    signature = (tuple(map(str, found.params)), tuple(map(str, found.results)))
    if signature != expected:
        raise ImageError(f"{what} has the type {_type(signature)}, expected {_type(expected)}")


def _type(signature: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    parameters, results = signature
    return f"({', '.join(parameters)}) -> ({', '.join(results)})"
