"""Graphs on onnxruntime: inputs and outputs are bound straight onto the arena's buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import DeviceError, ImageError, Unsupported, UsageError
from hailmesh.hail.lane import Lane
from hailmesh.kernels import ort, vetting, watchdog
from hailmesh.kernels.executor import Allocate, TensorSpec, check_tensors, describe
from hailmesh.kernels.shapes import OutputShapes, Shape


class OnnxExecutor:
    """An ONNX graph, from a path or an open file descriptor, as an `Executor` on a lane's cores.

    With one thread a run takes place on its caller's thread, and several callers run side by side; with
    more, runs share one pool of `threads`. `spin` lets the pool burn cycles between operators: lower latency
    alone, bad neighbours else. Raises Denied or ImageError for a model that is refused or doesn't load.
    """

    def __init__(
        self,
        source: int | Path,
        *,
        threads: int,
        lane: Lane,
        name: str = "",
        spin: bool = False,
        loops: bool = False,
    ) -> None:
        self.name = name
        self._lane = lane
        self._session = open_session(source, threads=threads, spin=spin, loops=loops, name=name)
        declared_in, declared_out = self._session.get_inputs(), self._session.get_outputs()
        self.inputs = tuple(tensor_spec(arg) for arg in declared_in)
        self.outputs = tuple(tensor_spec(arg) for arg in declared_out)
        self._shapes = OutputShapes([arg.shape for arg in declared_in], [arg.shape for arg in declared_out])

    def run(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer | None],
        allocate: Allocate,
        wanted: Sequence[bool],
        token: CancelToken,
        level: int,
    ) -> list[Buffer | None]:
        """See `Executor.run`. An output whose shape isn't known yet is computed by onnxruntime into memory
        of its own and copied; its shape is remembered for inputs of these shapes."""
        check_tensors("input", self.inputs, inputs)
        check_tensors("output", self.outputs, outputs)
        if len(wanted) != len(self.outputs):
            raise UsageError(f"expected {len(self.outputs)} flags of wanted outputs, got {len(wanted)}")
        asked = [index for index, want in enumerate(wanted) if want]
        places: dict[int, Buffer | None] = dict.fromkeys(asked)
        shapes = self._shapes.predict(tuple(buffer.shape for buffer in inputs))
        for index in asked:
            shape = shapes[index]
            places[index] = None if shape is None else self._place(index, outputs[index], shape, allocate)
        try:
            results = self._compute(inputs, places, token, level)
        except DeviceError:
            # onnxruntime checks the shape of what it is to fill: perhaps a declared or a remembered shape
            # doesn't hold for this data. In memory of its own it tells the true one.
            if not any(place is not None for place in places.values()):
                raise
            results = self._compute(inputs, dict.fromkeys(asked), token, level)
        filled: list[Buffer | None] = [None] * len(self.outputs)
        for index, result in results.items():
            if isinstance(result, Buffer):
                filled[index] = result
                continue
            shape = tuple(result.shape())
            self._shapes.learn(tuple(buffer.shape for buffer in inputs), index, shape)
            place = self._place(index, outputs[index], shape, allocate)
            ctypes.memmove(place.address, result.data_ptr(), place.nbytes)
            filled[index] = place
        return filled

    def close(self) -> None:
        """See `Executor.close`."""
        self._session = None

    def _place(self, index: int, given: Buffer | None, shape: Shape, allocate: Allocate) -> Buffer:
        """Where output `index`, of `shape`, goes."""
        spec = self.outputs[index]
        if given is None:
            return allocate(spec.dtype, shape)
        if given.shape != shape:
            expected = TensorSpec(spec.name, spec.dtype, shape)
            raise UsageError(f"output {spec.name!r}: expected {expected}, got {describe(given)}")
        return given

    def _compute(
        self, inputs: Sequence[Buffer], places: dict[int, Buffer | None], token: CancelToken, level: int
    ) -> dict[int, Any]:
        """One run. Per asked output: its place, or, where that was None, onnxruntime's own value."""
        if not places:
            return {}
        binding = self._session.io_binding()
        for spec, buffer in zip(self.inputs, inputs, strict=True):
            binding.bind_input(spec.name, "cpu", 0, spec.dtype.numpy.type, buffer.shape, buffer.address)
        for index, place in places.items():
            spec = self.outputs[index]
            if place is None:
                binding.bind_output(spec.name, "cpu")
            else:
                binding.bind_output(spec.name, "cpu", 0, spec.dtype.numpy.type, place.shape, place.address)
        with self._lane.ticket(level, token):
            run_bound(self._session, binding, token, self.name)
        if all(place is not None for place in places.values()):
            return dict(places)
        values = dict(zip(places, binding.get_outputs(), strict=True))
        return {index: values[index] if place is None else place for index, place in places.items()}


def open_session(source: int | Path, *, threads: int, spin: bool, loops: bool, name: str) -> Any:
    """A vetted model's InferenceSession. Denied or ImageError, with `name` in it, if that can't be."""
    runtime = ort.load()
    vetting.vet(source, loops=loops)
    path = f"/proc/self/fd/{source}" if isinstance(source, int) else str(source)
    try:
        return ort.session(path, threads=threads, spin=spin)
    except Exception as error:
        raise ImageError(
            f"onnxruntime {runtime.__version__} can't load graph {name!r}: {ort.first_line(error)}"
        ) from error


def tensor_spec(declared: Any) -> TensorSpec:
    """The TensorSpec of a session's input or output; Unsupported if it isn't a tensor a Buffer can hold."""
    dtype = ort.DTYPES.get(declared.type)
    if dtype is None:
        known = ", ".join(ort.DTYPES)
        raise Unsupported(f"tensor {declared.name!r} is {declared.type}; a unit's graphs take {known}")
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in declared.shape)
    return TensorSpec(declared.name, dtype, shape)


def run_bound(session: Any, binding: Any, token: CancelToken, name: str) -> None:
    """Runs what was bound, and ends it within one operator when the token is cancelled or its deadline
    passes: then Cancelled or DeadlineExceeded. DeviceError for whatever else goes wrong inside."""
    options = ort.run_options()

    def stop() -> None:
        options.terminate = True

    token.check()
    with watchdog.shared().over(token, stop):
        try:
            session.run_with_iobinding(binding, options)
        except Exception as error:
            token.check()
            raise DeviceError(f"graph {name!r} failed: {ort.first_line(error)}") from error
