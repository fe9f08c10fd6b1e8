"""Named kernels: each is a folder here with `spec.py` (what it declares), `reference.py` (the truth, in plain
float64 numpy) and `cpu.py` (what runs). They are found by their folders; nothing lists them."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import NotFound, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.kernels.executor import Allocate, check_tensors
from hailmesh.kernels.spec import Args, Array, KernelSpec

Compute = Callable[[Args, Sequence[Array], Sequence["Array | None"]], None]
"""(checked arguments, inputs, outputs to fill; None: not wanted)."""
Reference = Callable[[Args, Sequence[Array]], tuple[Array, ...]]


class Kernel:
    """A kernel's CPU version, ready to run on a lane; without one it runs as soon as it is called."""

    def __init__(self, name: str, lane: Lane | None = None) -> None:
        self.name = name
        self.spec = _spec(name)
        self._lane = lane
        self._compute: Compute = _part(name, "cpu").compute

    def run(
        self,
        args: dict[str, Any],
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]:
        """As `Executor.run`, with the kernel's arguments. UsageError names the argument or the tensor that
        isn't as the spec says."""
        checked = self.spec.check(args)
        check_tensors("input", self.spec.inputs, inputs)
        results = self.spec.outputs(checked, tuple(buffer.shape for buffer in inputs))
        check_tensors("output", results, outputs)
        if len(wanted) != len(results):
            raise UsageError(f"expected {len(results)} flags of wanted outputs, got {len(wanted)}")
        filled: list[Buffer | None] = [
            (given or allocate(spec.dtype, spec.shape)) if want else None
            for spec, given, want in zip(results, outputs, wanted, strict=True)
        ]
        gate = self._lane.ticket(level, token) if self._lane is not None else nullcontext()
        # What isn't finite in the inputs comes out as such; it is the caller's, and no reason to warn here.
        with gate, np.errstate(all="ignore"):
            token.check()
            self._compute(
                checked,
                [buffer.numpy() for buffer in inputs],
                [None if buffer is None else buffer.numpy() for buffer in filled],
            )
        return filled


@cache
def names() -> tuple[str, ...]:
    """All kernels there are."""
    here = Path(__file__).parent
    found = (module.name for module in pkgutil.iter_modules([str(here)]) if module.ispkg)
    return tuple(sorted(name for name in found if (here / name / "spec.py").is_file()))


def kernel(name: str, lane: Lane | None = None) -> Kernel:
    """The kernel of that name, its runs on `lane`. NotFound lists those there are."""
    return Kernel(_known(name), lane)


def reference(name: str) -> Reference:
    """The kernel's float64 reference: (checked arguments, inputs) → outputs."""
    compute: Reference = _part(_known(name), "reference").compute
    return compute


def _known(name: str) -> str:
    if name not in names():
        raise NotFound(f"there is no kernel {name!r}; there are {', '.join(names())}")
    return name


def _spec(name: str) -> KernelSpec:
    spec = _part(name, "spec").SPEC
    assert isinstance(spec, KernelSpec)
    return spec


def _part(name: str, part: str) -> Any:
    return import_module(f"{__package__}.{name}.{part}")
