"""Calls about autoregressive sequences. Their steps run on the graph's engine, together with those of other
instances that wait for one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import orjson

from hailmesh.hail.buffer import DType
from hailmesh.kernels.sampling import Mask, SamplingParams, sample
from hailmesh.sandboxes.calls.graphs import MAX_NAME, inputs_of
from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.handles import Tensor
from hailmesh.sandboxes.stopwatch import device_time, waiting
from hailmesh.sandboxes.unit import Graph, Sequenced, Sequences

MAX_IDS = 1 << 20
MAX_PARAMS = 64 << 10


class Sequence:
    """A sequence of one instance, and the tensors it reads until it is closed."""

    def __init__(self, inner: Sequenced, sequences: Sequences) -> None:
        self.inner = inner
        self.vocabulary = sequences.vocabulary
        self.bound = {spec.name for spec in sequences.bound}
        self.fed = False
        self._held: list[Tensor] = []
        self._seed: int | None = None
        self._generator: np.random.Generator | None = None

    def bind(self, name: str, tensor: Tensor) -> None:
        """ENOENT for a name the graph doesn't have."""
        if name not in self.bound:
            there = ", ".join(sorted(self.bound)) or "none"
            raise CallError(Errno.ENOENT, f"the graph has no bound input {name!r}; it has {there}")
        tensor.freeze()
        self.inner.bind(name, tensor.buffer)
        self._held.append(tensor.hold())

    def generator(self, context: Context, seed: int | None) -> np.random.Generator:
        """One stream of numbers per sequence; a new one where a seed is given that wasn't the last."""
        if self._generator is None or (seed is not None and seed != self._seed):
            self._seed = seed
            start = int.from_bytes(context.run.random(8), "little") if seed is None else seed
            self._generator = np.random.default_rng(start)
        return self._generator

    def close(self) -> None:
        self.inner.close()
        while self._held:
            self._held.pop().let_go()


def seq_open(context: Context, handle: int, max_tokens: int, given: int, count: int) -> int:
    graph = context.handles.get(handle, Graph)
    engine, run = graph.sequences, context.run
    if engine is None:
        raise CallError(Errno.EINVAL, f"graph {graph.name!r} is no sequence; run it with graph_run")
    if not 0 < max_tokens <= engine.context:
        raise CallError(Errno.E2BIG, f"a sequence has 1 to {engine.context} tokens, not {max_tokens}")
    tensors = inputs_of(context, given, count)
    if tensors and len(tensors) != len(engine.bound):
        expected = ", ".join(spec.name for spec in engine.bound) or "none"
        raise CallError(Errno.EINVAL, f"expected the bound inputs {expected}; got {len(tensors)} tensors")
    with waiting(run.stages, "gate"):
        sequence = Sequence(engine.open(max_tokens, run.token, run.job.level), engine)
    try:
        for spec, tensor in zip(engine.bound, tensors, strict=False):
            sequence.bind(spec.name, tensor)
        return context.handles.add(sequence)
    except BaseException:
        sequence.close()
        raise


def seq_bind(context: Context, handle: int, name: int, length: int, tensor: int) -> int:
    sequence = context.handles.get(handle, Sequence)
    if sequence.fed:
        raise CallError(Errno.EBUSY, "inputs are bound before the first feed")
    wanted = context.memory.text(name, length, MAX_NAME)
    sequence.bind(wanted, context.handles.get(tensor, Tensor))
    return 0


def seq_feed(context: Context, handle: int, ids: int, count: int, logits: int) -> int:
    sequence = context.handles.get(handle, Sequence)
    target = _target(context, sequence, logits) if logits else None
    if count == 0:
        raise CallError(Errno.EINVAL, "feed at least one token")
    tokens = np.array(context.memory.integers(ids, count, MAX_IDS), dtype=np.int64)
    with device_time(context.run.stages):
        sequence.inner.feed(tokens, context.run.token)
    sequence.fed = True
    if target is not None:
        target[...] = sequence.inner.logits
    return 0


def seq_sample(context: Context, handle: int, params: int, length: int, out: int, capacity: int) -> int:
    sequence = context.handles.get(handle, Sequence)
    if not sequence.fed:
        raise CallError(Errno.EINVAL, "there are no logits to sample from before the first feed")
    if length > MAX_PARAMS:
        raise CallError(Errno.E2BIG, f"sampling parameters have at most {MAX_PARAMS} bytes, not {length}")
    wanted = SamplingParams.parse(context.memory.read(params, length))
    mask = None if wanted.mask is None else _mask(context, sequence, wanted.mask)
    sampled = sample(sequence.inner.logits, wanted, sequence.generator(context, wanted.seed), mask)
    if wanted.logprobs:
        report = orjson.dumps({"logprob": sampled.logprob, "top": sampled.top}) + b"\0"
        if len(report) > capacity:
            raise CallError(
                Errno.E2BIG, f"the report takes {len(report)} bytes, there is room for {capacity}"
            )
        context.memory.write(out, report)
    return sampled.token


def seq_close(context: Context, handle: int) -> int:
    sequence = context.handles.get(handle, Sequence)
    context.handles.remove(handle)
    sequence.close()
    return 0


def _target(context: Context, sequence: Sequence, handle: int) -> npt.NDArray[np.float32]:
    tensor = context.handles.get(handle, Tensor)
    if tensor.frozen:
        raise CallError(Errno.EROFS, f"tensor {handle} is frozen and can't receive logits")
    buffer = tensor.buffer
    if buffer.dtype != DType.F32 or buffer.shape != (sequence.vocabulary,):
        raise CallError(Errno.EINVAL, f"logits go into f32 [{sequence.vocabulary}], not {buffer.shape}")
    return buffer.numpy().view(np.float32)


def _mask(context: Context, sequence: Sequence, handle: int) -> Mask:
    buffer = context.handles.get(handle, Tensor).buffer
    if buffer.dtype != DType.U8 or buffer.shape != (sequence.vocabulary,):
        raise CallError(Errno.EINVAL, f"a mask is u8 [{sequence.vocabulary}], not {buffer.shape}")
    return buffer.numpy().view(np.uint8)
