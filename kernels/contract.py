"""How a graph decodes sequences, read off its inputs and outputs. Nothing of it is configured.

    input_ids      i64 or i32 [B, S]           the tokens to append
    seqlens_k      i32 [B]                     per sequence: its length with them, less one
    total_len      i32 scalar                  the longest sequence's length with them
    pos            i64 [S]                     optional: their positions
    past.N.k, .v   f32 or f16 [B, H, P, D]     layer N's keys and values; rows from the length on are unused
    present.N.k, .v                            the same memory, with the new rows, as GroupQueryAttention does
    logits         f32 or f16 [B, 1, V]        after the last token

Any further input is *bound*: given once per sequence, such as an encoder's keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import ImageError
from hailmesh.kernels.executor import TensorSpec
from hailmesh.kernels.onnx import tensor_spec

_STEP = ("input_ids", "seqlens_k", "total_len")
_FLOATS = (DType.F32, DType.F16)


@dataclass(frozen=True, slots=True)
class SequenceContract:
    """`caches`: the names N.k and N.v of past and present, in the graph's order, each [B, heads, rows,
    head_size]; `rows` is -1 where the graph leaves it free. `batched`: several sequences fit one run."""

    ids: TensorSpec
    lengths: TensorSpec
    total: TensorSpec
    positions: TensorSpec | None
    caches: tuple[str, ...]
    heads: int
    rows: int
    head_size: int
    cache_dtype: DType
    logits: TensorSpec
    bound: tuple[TensorSpec, ...]
    batched: bool

    @property
    def vocabulary(self) -> int:
        return self.logits.shape[2]

    @classmethod
    def of(cls, session: Any, name: str) -> SequenceContract:
        """ImageError, with `name`, for a graph that isn't of this kind."""
        inputs = {arg.name: tensor_spec(arg) for arg in session.get_inputs()}
        outputs = {arg.name: tensor_spec(arg) for arg in session.get_outputs()}
        caches = tuple(key.removeprefix("past.") for key in inputs if key.startswith("past."))
        wanted = {*_STEP, *(f"past.{cache}" for cache in caches)}
        missing = [f"input {key!r}" for key in _STEP if key not in inputs]
        missing += [f"output {key!r}" for key in _results(caches) if key not in outputs]
        if missing or not caches:
            raise _unfit(name, f"it lacks {', '.join(missing) or 'past.N.k and past.N.v'}")
        ids, lengths, total = (inputs[key] for key in _STEP)
        past = [inputs[f"past.{cache}"] for cache in caches]
        positions = inputs.get("pos")
        logits = outputs["logits"]
        bound = tuple(spec for key, spec in inputs.items() if key not in wanted and key != "pos")
        _check_steps(name, ids, lengths, total, positions)
        _check_caches(name, past, [outputs[f"present.{cache}"] for cache in caches])
        if logits.dtype not in _FLOATS or len(logits.shape) != 3 or logits.shape[2] < 1:
            raise _unfit(name, f"logits is {logits}, not f32 or f16 [B, 1, V] with V known")
        per_sequence = [ids, lengths, logits, *past, *(outputs[f"present.{cache}"] for cache in caches)]
        free = all(spec.shape[0] == -1 for spec in per_sequence)
        _, heads, rows, head_size = past[0].shape
        return cls(
            ids=ids,
            lengths=lengths,
            total=total,
            positions=positions,
            caches=caches,
            heads=heads,
            rows=rows,
            head_size=head_size,
            cache_dtype=past[0].dtype,
            logits=logits,
            bound=bound,
            batched=free and not bound and positions is None,
        )


def _results(caches: tuple[str, ...]) -> tuple[str, ...]:
    return ("logits", *(f"present.{cache}" for cache in caches))


def _check_steps(
    name: str, ids: TensorSpec, lengths: TensorSpec, total: TensorSpec, positions: TensorSpec | None
) -> None:
    if ids.dtype not in (DType.I64, DType.I32) or len(ids.shape) != 2 or ids.shape[1] != -1:
        raise _unfit(name, f"input_ids is {ids}, not i64 or i32 [B, S] with S free")
    if lengths.dtype != DType.I32 or len(lengths.shape) != 1:
        raise _unfit(name, f"seqlens_k is {lengths}, not i32 [B]")
    if total.dtype != DType.I32 or total.shape not in ((), (1,)):
        raise _unfit(name, f"total_len is {total}, not an i32 scalar")
    if positions is not None and (positions.dtype != DType.I64 or positions.shape != (-1,)):
        raise _unfit(name, f"pos is {positions}, not i64 [S]")


def _check_caches(name: str, past: list[TensorSpec], present: list[TensorSpec]) -> None:
    first = past[0]
    if first.dtype not in _FLOATS or len(first.shape) != 4 or min(first.shape[1], first.shape[3]) < 1:
        raise _unfit(name, f"{first.name} is {first}, not f32 or f16 [B, H, P, D] with H and D known")
    for spec in past:
        if (spec.dtype, spec.shape) != (first.dtype, first.shape):
            raise _unfit(name, f"{spec.name} is {spec}, but {first.name} is {first}")
    for spec in present:
        if spec.dtype != first.dtype or len(spec.shape) != 4:
            raise _unfit(name, f"{spec.name} is {spec}, but {first.name} is {first}")


def _unfit(name: str, why: str) -> ImageError:
    return ImageError(f"graph {name!r} can't decode sequences: {why}")
