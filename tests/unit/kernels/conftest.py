"""Small graphs made on the spot, an arena, and lanes whose steps a test can count out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hailmesh.hail.arena import Arena, Lease
from hailmesh.hail.buffer import Buffer, DType
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.gate import Gate
from hailmesh.hail.lane import BEST_EFFORT, Lane

VOCABULARY, WIDTH, HEADS, GROUPS, HEAD, LAYERS, ROTARY = 61, 32, 4, 2, 16, 2, 256
SCALE = HEAD**-0.5


class Memory:
    """Leases from one arena, released together."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.leases: list[Lease] = []

    def allocate(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.leases.append(self.arena.lease(nbytes, owner="test", dtype=dtype, shape=shape))
        return self.leases[-1].buffer

    def holding(self, array: np.ndarray) -> Buffer:
        buffer = self.allocate(DType.of(array.dtype), array.shape)
        buffer.numpy()[...] = array
        return buffer

    def release(self) -> None:
        for lease in self.leases:
            lease.release()


class SteppedLane:
    """Stands in for a Lane: each ticket takes one of the permits that the test has given."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.levels: list[int] = []
        self.asked = 0
        self._open = False

    def pin(self) -> None:
        pass

    def allow(self, steps: int) -> None:
        self.permits.release(steps)

    def allow_all(self) -> None:
        self._open = True

    @contextmanager
    def ticket(self, level: int, token: CancelToken) -> Iterator[None]:
        self.asked += 1
        while not (permitted := self._open or self.permits.acquire(timeout=0.01)):
            token.check()
        if token.cancelled and not self._open:
            self.permits.release(permitted)
            token.check()
        self.levels.append(level)
        yield


def wait_until(condition: Callable[[], object]) -> None:
    """Returns once `condition` holds; fails after half a minute."""
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.001)


class Decoder:
    """The weights of a tiny decoder, what it computes (float64, one token after another, no cache), and the
    graph of it that an engine runs. With `cross`, one like whisper's: a bound input, positions, batch 1."""

    def __init__(self, cross: bool = False, rows: int = VOCABULARY) -> None:
        rng = np.random.default_rng(5)
        self.cross = cross
        packed = (HEADS + 2 * GROUPS) * HEAD
        self.embed = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        self.head = (rng.standard_normal((WIDTH, VOCABULARY)) * 0.5).astype(np.float32)
        self.layers = [
            SimpleNamespace(
                qkv=(rng.standard_normal((WIDTH, packed)) * 0.3).astype(np.float32),
                out=(rng.standard_normal((HEADS * HEAD, WIDTH)) * 0.2).astype(np.float32),
                up=(rng.standard_normal((WIDTH, WIDTH)) * 0.2).astype(np.float32),
            )
            for _ in range(LAYERS)
        ]
        angles = np.arange(ROTARY)[:, None] / 100.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.places = rng.standard_normal((ROTARY, WIDTH)).astype(np.float32)

    def logits(self, ids: list[int], context: np.ndarray | None = None) -> np.ndarray:
        """float64 [tokens, vocabulary]: the truth for each prefix. `context` [frames, width] for `cross`."""
        x = self.embed[ids].astype(np.float64)
        if self.cross:
            x = x + self.places[: len(ids)]
        for layer in self.layers:
            x = x + self._attention(x @ layer.qkv) @ layer.out
            if context is not None:
                x = x + context.mean(axis=0)
            x = x + np.tanh(x @ layer.up)
        return x @ self.head

    def _attention(self, qkv: np.ndarray) -> np.ndarray:
        n = len(qkv)
        parts = qkv.reshape(n, HEADS + 2 * GROUPS, HEAD)
        q, k, v = parts[:, :HEADS], parts[:, HEADS : HEADS + GROUPS], parts[:, HEADS + GROUPS :]
        if not self.cross:
            q, k = self._rotate(q), self._rotate(k)
        k, v = k.repeat(HEADS // GROUPS, 1), v.repeat(HEADS // GROUPS, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) * SCALE
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(n, HEADS * HEAD)

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        cos, sin = self.cos[: len(x), None].astype(np.float64), self.sin[: len(x), None].astype(np.float64)
        low, high = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    def graph(self) -> onnx.ModelProto:
        build = Builder()
        batch = 1 if self.cross else "B"
        build.input("input_ids", TensorProto.INT64, [batch, "S"])
        build.input("seqlens_k", TensorProto.INT32, [batch])
        build.input("total_len", TensorProto.INT32, [])
        x = build.node("Gather", [build.weight("embed", self.embed), "input_ids"])
        if self.cross:
            build.input("pos", TensorProto.INT64, ["S"])
            x = build.node("Add", [x, build.node("Gather", [build.weight("places", self.places), "pos"])])
            build.input("cross.context", TensorProto.FLOAT, [1, "A", WIDTH])
            mean = build.node("ReduceMean", ["cross.context", build.weight("one", np.array([1]))], keepdims=1)
        for index, layer in enumerate(self.layers):
            x = self._layer(build, x, index, layer, batch)
            if self.cross:
                x = build.node("Add", [x, mean])
            up = build.node("Tanh", [build.node("MatMul", [x, build.weight(f"up{index}", layer.up)])])
            x = build.node("Add", [x, up])
        ends = (
            build.weight(name, np.array([value]))
            for name, value in (("from", -1), ("to", 2**31 - 1), ("axis", 1))
        )
        x = build.node("Slice", [x, *ends])
        build.node("MatMul", [x, build.weight("head", self.head)], ["logits"])
        build.output("logits", TensorProto.FLOAT, [batch, 1, VOCABULARY])
        return build.model()

    def _layer(self, build: Builder, x: str, index: int, layer: SimpleNamespace, batch: int | str) -> str:
        for part in "kv":
            build.input(f"past.{index}.{part}", TensorProto.FLOAT, [batch, GROUPS, "P", HEAD])
            build.output(f"present.{index}.{part}", TensorProto.FLOAT, [batch, GROUPS, "P2", HEAD])
        qkv = build.node("MatMul", [x, build.weight(f"qkv{index}", layer.qkv)])
        rotary = [] if self.cross else [build.weight("cos", self.cos), build.weight("sin", self.sin)]
        inputs = [qkv, "", "", f"past.{index}.k", f"past.{index}.v", "seqlens_k", "total_len", *rotary]
        outputs = [f"attention{index}", f"present.{index}.k", f"present.{index}.v"]
        attention = build.node(
            "GroupQueryAttention",
            inputs,
            outputs,
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=int(not self.cross),
            scale=SCALE,
        )
        return build.node(
            "Add", [x, build.node("MatMul", [attention, build.weight(f"out{index}", layer.out)])]
        )


class Builder:
    """Collects an ONNX graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def input(self, name: str, kind: int, shape: list[int | str]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))

    def output(self, name: str, kind: int, shape: list[int | str] | None) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def node(
        self, operator: str, inputs: list[str], outputs: list[str] | None = None, **attributes: object
    ) -> str:
        outputs = outputs or [f"{operator}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "test", self.inputs, self.outputs, list(self.weights.values()))
        domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Arena.create(64 << 20) as arena:
        memory = Memory(arena)
        yield memory
        memory.release()


@pytest.fixture
def gates(memory: Memory) -> Callable[[int], Gate]:
    """A gate per row of one page, as for several processes."""
    page = memory.allocate(DType.U8, (65536,))
    return lambda row: Gate(page.address, row)


@pytest.fixture
def lane(gates: Callable[[int], Gate]) -> Lane:
    return Lane(BEST_EFFORT, (), gates(0), False)


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    def save(model: onnx.ModelProto) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return save


@pytest.fixture(scope="session")
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture(scope="session")
def cross_decoder() -> Decoder:
    return Decoder(cross=True)


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """What test modules of this folder share."""
    return SimpleNamespace(
        Builder=Builder,
        Decoder=Decoder,
        SteppedLane=SteppedLane,
        wait_until=wait_until,
        VOCABULARY=VOCABULARY,
    )
