"""Guests in WebAssembly text, as small as what they are to show allows."""

from __future__ import annotations

from wasmtime import wat2wasm

WINDOW = 1 << 20
"""Where these guests have their one window."""

_SIGNATURES = {
    "part_count": "(result i32)",
    "part_map": "(param i32) (result i32)",
    "tensor_new": "(param i32 i32 i32) (result i32)",
    "tensor_info": "(param i32 i32) (result i32)",
    "tensor_map": "(param i32 i32) (result i32)",
    "reply": "(param i32 i32) (result i32)",
    "reply_tensor": "(param i32 i32 i32) (result i32)",
}


def guest(
    handle: str = "", *, calls: tuple[str, ...] = (), pages: int = 2, data: str = "{}", globals_: str = ""
) -> bytes:
    """A unit whose mesh_handle runs `handle` and then replies `{}`. `calls`: what it imports besides
    `reply`; `data`: what lies at address 16, beginning with the reply."""
    imports = "\n".join(
        f'(import "mesh_v1" "{name}" (func ${name} {_SIGNATURES[name]}))' for name in ("reply", *calls)
    )
    return bytes(
        wat2wasm(f"""(module
          {imports}
          (memory (export "memory") {pages})
          (data (i32.const 16) "{data}")
          {globals_}
          (func (export "_initialize"))
          (func (export "mesh_abi") (result i32) (i32.const 1))
          (func (export "mesh_reserve") (param i32) (result i32) (i32.const {WINDOW}))
          (func (export "mesh_handle") (result i32) (local $i i32) (local $sum i64)
            {handle}
            (call $reply (i32.const 16) (i32.const 2))))""")
    )


def calling(times: int, call: str) -> str:
    """Makes a host call over and over, for mesh_handle."""
    return f"""(loop $again
        (drop {call})
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const {times}))))"""


def reading(nbytes: int) -> str:
    """Reads the window, 8 bytes at a time, and leaves the sum at address 64."""
    return f"""(loop $again
        (local.set $sum (i64.add (local.get $sum) (i64.load (i32.add (i32.const {WINDOW}) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const {nbytes}))))
      (i64.store (i32.const 64) (local.get $sum))"""


def filling(nbytes: int) -> str:
    """Writes a pattern over the window, so that every page of it exists."""
    return f"""(loop $again
        (i64.store (i32.add (i32.const {WINDOW}) (local.get $i)) (i64.extend_i32_u (local.get $i)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const {nbytes}))))"""
