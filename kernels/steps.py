"""One step of a sequence graph: its inputs filled in, bound once and for all, and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.kernels.contract import SequenceContract
from hailmesh.kernels.executor import TensorSpec
from hailmesh.kernels.kv import KeyValues
from hailmesh.kernels.onnx import run_bound

Logits = npt.NDArray[np.float32]


class Steps:
    """Owns the small input arrays, the logits, and the bindings over neighbouring slots. Used by one thread.

    Bindings go by address and keep nothing alive, so everything bound is an attribute here, or, for a
    sequence's own inputs, kept by whoever passes them in.
    """

    def __init__(
        self, session: Any, contract: SequenceContract, kv: KeyValues, longest: int, name: str
    ) -> None:
        self._session = session
        self._contract = contract
        self._kv = kv
        self._name = name
        self._ids = np.zeros(max(kv.slots, longest), contract.ids.dtype.numpy)
        self._positions = np.zeros(longest, np.int64)
        self._lengths = np.zeros(kv.slots, np.int32)
        self._total = np.zeros(contract.total.shape, np.int32)
        self._logits = np.zeros((kv.slots, contract.vocabulary), contract.logits.dtype.numpy)
        self._bindings: dict[tuple[int, int], Any] = {}
        self._alone: dict[int, Any] = {}

    def append_one_each(self, first: int, rows: Sequence[tuple[int, int]], token: CancelToken) -> Logits:
        """One (token id, position) to each of the slots from `first` on. Returns float32 [slots, vocabulary],
        overwritten by the next step. Raises as `run_bound`."""
        tokens, positions = zip(*rows, strict=True)
        count = len(tokens)
        binding = self._bindings.get((first, count))
        if binding is None:
            binding = self._bindings[first, count] = self._over(first, count, {})
            self._bind_input(binding, self._contract.ids, (count, 1), self._ids)
        self._ids[:count] = tokens
        self._lengths[:count] = positions
        self._total[...] = max(positions) + 1
        run_bound(self._session, binding, token, self._name)
        logits: Logits = self._logits[:count].astype(np.float32, copy=False)
        return logits

    def append(self, binding: Any, ids: npt.NDArray[np.int64], position: int, token: CancelToken) -> Logits:
        """`ids` to the sequence of a binding made by `alone`. Returns float32 [vocabulary] after the last of
        them, overwritten by the next step. Raises as `run_bound`."""
        count = len(ids)
        self._ids[:count] = ids
        self._bind_input(binding, self._contract.ids, (1, count), self._ids)
        if self._contract.positions is not None:
            self._positions[:count] = np.arange(position, position + count)
            self._bind_input(binding, self._contract.positions, (count,), self._positions)
        self._lengths[0] = position + count - 1
        self._total[...] = position + count
        run_bound(self._session, binding, token, self._name)
        logits: Logits = self._logits[0].astype(np.float32, copy=False)
        return logits

    def alone(self, slot: int, bound: Mapping[str, Buffer]) -> Any:
        """A binding for `append` to the sequence in `slot`. One with inputs of its own must be kept with its
        sequence, and they as long as it; of others there is one a slot."""
        if bound:
            return self._over(slot, 1, bound)
        if slot not in self._alone:
            self._alone[slot] = self._over(slot, 1, bound)
        return self._alone[slot]

    def _over(self, first: int, count: int, bound: Mapping[str, Buffer]) -> Any:
        contract, binding = self._contract, self._session.io_binding()
        shape = (count, *self._kv.shape)
        dtype = contract.cache_dtype.numpy.type
        for cache, address in zip(contract.caches, self._kv.addresses(first), strict=True):
            binding.bind_input(f"past.{cache}", "cpu", 0, dtype, shape, address)
            binding.bind_output(f"present.{cache}", "cpu", 0, dtype, shape, address)
        self._bind_input(binding, contract.lengths, (count,), self._lengths)
        self._bind_input(binding, contract.total, contract.total.shape, self._total)
        for spec in contract.bound:
            buffer = bound[spec.name]
            binding.bind_input(spec.name, "cpu", 0, spec.dtype.numpy.type, buffer.shape, buffer.address)
        logits = contract.logits
        binding.bind_output(
            logits.name,
            "cpu",
            0,
            logits.dtype.numpy.type,
            (count, 1, contract.vocabulary),
            self._logits.ctypes.data,
        )
        return binding

    @staticmethod
    def _bind_input(binding: Any, spec: TensorSpec, shape: tuple[int, ...], array: npt.NDArray[Any]) -> None:
        binding.bind_input(spec.name, "cpu", 0, spec.dtype.numpy.type, shape, array.ctypes.data)
