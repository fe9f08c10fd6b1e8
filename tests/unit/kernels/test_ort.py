"""How onnxruntime is loaded."""

from __future__ import annotations

import builtins
import importlib.metadata
import subprocess
import sys
from typing import Any

import pytest

from hailmesh.hail.errors import DeviceError
from hailmesh.kernels import ort


def test_importing_the_kernels_imports_no_runtime() -> None:
    code = (
        "import sys, hailmesh.kernels.onnx, hailmesh.kernels.sequence, hailmesh.kernels.tokenizer, "
        "hailmesh.kernels.registry; print(sorted({'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_telemetry_is_off_before_the_runtime_is_imported() -> None:
    code = """
import os, sys
os.environ.pop("ORT_DISABLE_TELEMETRY", None)
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print(os.environ.get("ORT_DISABLE_TELEMETRY"))
sys.meta_path.insert(0, Watch())
from hailmesh.kernels import ort
ort.load()
"""
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "1\n"
    )


def test_both_builds_at_once_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    with pytest.raises(DeviceError, match="both installed"):
        ort.load.__wrapped__()


def test_a_missing_runtime_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError("No module named 'onnxruntime'")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DeviceError, match=r"install hailmesh\[cpu\]"):
        ort.load.__wrapped__()
