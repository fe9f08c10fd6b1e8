"""The compiler child: `python -m hailmesh.sandboxes.compile WASM_FD OUT_FD`.

Reads a module, checks it against the unit ABI, compiles it and writes native code; then it ends. It runs
apart from everything that serves, niced and with limits on its memory and time, since a hostile module can
make a compiler take plenty of both (seen: one function of 1.8 MB took 574 MB). On failure it prints one line
to standard error and exits with REFUSED.
"""

from __future__ import annotations

import os
import resource
import sys

from wasmtime import Module, WasmtimeError

from hailmesh.hail.errors import ImageError
from hailmesh.sandboxes import engine
from hailmesh.sandboxes.abi import check_binary, check_interface
from hailmesh.sandboxes.module import one_line

REFUSED = 3
MAX_WASM = 64 << 20
CPU_SECONDS = 120
ADDRESS_SPACE = 4 << 30
_NICE = 10


def limit() -> None:
    """Bounds this process: no core dumps, so much memory and CPU time, and last in line for the rest."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    os.nice(_NICE)


def compile_module(wasm: bytes) -> bytes:
    """Native code for this machine; ImageError says what is wrong with the module."""
    if len(wasm) > MAX_WASM:
        raise ImageError(f"the unit's code has more than {MAX_WASM} bytes")
    check_binary(wasm)
    try:
        module = Module(engine.new(), wasm)
    except WasmtimeError as error:
        raise ImageError(f"the unit's code is not valid wasm: {one_line(error)}") from error
    check_interface(module.imports, module.exports)
    return bytes(module.serialize())


def main(arguments: list[str]) -> int:
    source, target = (int(argument) for argument in arguments)
    limit()
    try:
        wasm = os.pread(source, MAX_WASM + 1, 0)
        native = memoryview(compile_module(wasm))
    except ImageError as error:
        print(error, file=sys.stderr)
        return REFUSED
    while native:
        native = native[os.write(target, native) :]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
