"""onnxruntime, loaded once and late, its telemetry off before; one clear error when it can't be used."""

from __future__ import annotations

import importlib.metadata
import os
from functools import cache
from typing import Any

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import DeviceError

_SILENT = 4
"""Log nothing but what is fatal: every failure comes back as an exception."""

_SPIN_US = "200"
"""How long a pool's thread may spin for its next piece of work: over the gaps within a run, not much beyond
it. A classifier on two threads, CPU ms a run (best latency): 28 (26) without spinning, 36 (20) with 50 µs,
35 (14) with 200, 48 (14) with 5,000; onnxruntime's own duration goes on for some 60 ms after every run.
Versions that don't know the option ignore it."""

DTYPES = {
    "tensor(float16)": DType.F16,
    "tensor(float)": DType.F32,
    "tensor(double)": DType.F64,
    "tensor(uint8)": DType.U8,
    "tensor(int32)": DType.I32,
    "tensor(int64)": DType.I64,
    "tensor(int8)": DType.I8,
    "tensor(int16)": DType.I16,
    "tensor(uint16)": DType.U16,
    "tensor(uint32)": DType.U32,
    "tensor(uint64)": DType.U64,
    "tensor(bool)": DType.BOOL,
}
"""onnxruntime's names of the element types that a Buffer can hold."""


@cache
def load() -> Any:
    """The module `onnxruntime`. DeviceError if it is missing, or installed twice: onnxruntime and
    onnxruntime-gpu own the same files and break each other."""
    found = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(found) == 2:
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and break each other: uninstall both, "
            "then install hailmesh[cpu] or hailmesh[gpu]"
        )
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise DeviceError(
            f"graphs need onnxruntime, which can't be imported ({error}): install hailmesh[cpu]"
        ) from error
    onnxruntime.disable_telemetry_events()
    onnxruntime.set_default_logger_severity(_SILENT)
    return onnxruntime


def session(path: str, *, threads: int, spin: bool) -> Any:
    """An InferenceSession on the CPU. One intra-op thread means: on the caller's own thread, so that one
    session serves callers on several lanes; with more, `spin` lets them burn a few cycles between pieces of
    work. Raises what onnxruntime raises."""
    ort = load()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _SILENT
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_options() -> Any:
    """Options of one run; setting their `terminate` from any thread ends it at its next operator."""
    options = load().RunOptions()
    options.log_severity_level = _SILENT
    # onnxruntime's Python layer asks each run for its CUDA-graph id; one that isn't set costs an exception
    # (measured: 110 µs a run). -1: none.
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def first_line(error: BaseException) -> str:
    """onnxruntime's message without its stack and source positions."""
    return str(error).strip().partition("\n")[0]


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
