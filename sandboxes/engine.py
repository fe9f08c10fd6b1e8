"""The wasm engine of a process: what wasm it takes, and how native code is made and bounded."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wasmtime import Config, Engine
from wasmtime import _ffi as ffi

MAX_MEMORY = 1 << 32
"""Bytes of address space that are reserved for a guest's memory, so that it never moves when it grows."""

SETTINGS: tuple[tuple[str, bool | int], ...] = (
    ("epoch_interruption", True),
    ("memory_may_move", False),
    ("memory_reservation", MAX_MEMORY),
    ("max_wasm_stack", 512 << 10),
    ("parallel_compilation", False),
    ("wasm_bulk_memory", True),
    ("wasm_multi_value", True),
    ("wasm_reference_types", True),
    ("wasm_simd", True),
    ("concurrency_support", False),
    ("gc_support", False),
    ("shared_memory", False),
    ("wasm_component_model", False),
    ("wasm_custom_page_sizes", False),
    ("wasm_exceptions", False),
    ("wasm_function_references", False),
    ("wasm_gc", False),
    ("wasm_memory64", False),
    ("wasm_multi_memory", False),
    ("wasm_relaxed_simd", False),
    ("wasm_stack_switching", False),
    ("wasm_tail_call", False),
    ("wasm_threads", False),
    ("wasm_wide_arithmetic", False),
)
"""wasmtime's, by the names of its C API (`wasmtime_config_NAME_set`). What C compilers emit today is on, all
other proposals are off: code that no unit needs is code that nobody can attack."""


def new() -> Any:
    """A wasmtime Engine with these SETTINGS. Modules and types of one engine never meet another's: wasmtime
    aborts the process then."""
    config = Config()
    for name, value in SETTINGS:
        getattr(ffi, f"wasmtime_config_{name}_set")(config.ptr(), value)
    return Engine(config)


@cache
def fingerprint() -> str:
    """What native code depends on besides its wasm: wasmtime's version, SETTINGS, and this machine's CPU.
    Hex, 16 digits."""
    facts = (version("wasmtime"), SETTINGS, platform.machine(), _cpu_features())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _cpu_features() -> str:
    """The first core's features, as Linux lists them: `flags` on x86-64, `Features` on aarch64."""
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return " ".join(sorted(value.split()))
    return ""
