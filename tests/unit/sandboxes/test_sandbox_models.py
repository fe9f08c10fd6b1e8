"""Calls that compute, with small real graphs: graph_run, kernel_run, the tokenizer, sequences."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hailmesh.hail.arena import GRANULE
from hailmesh.hail.errors import DeadlineExceeded, MeshError, TooLarge, UsageError
from hailmesh.hail.gate import Gate
from hailmesh.kernels.onnx import OnnxExecutor
from hailmesh.kernels.registry import kernel
from hailmesh.kernels.sequence import SequenceEngine
from hailmesh.kernels.tokenizer import Tokenizer
from hailmesh.sandboxes.errno import Errno
from hailmesh.sandboxes.stopwatch import MeteredLane
from hailmesh.sandboxes.unit import Graph

VOCABULARY = 8
CONTEXT = 16


def save(path: Path, nodes: Any, inputs: Any, outputs: Any, initializers: Any = ()) -> Path:
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def value(name: str, dtype: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def sum_graph(path: Path) -> Path:
    """sum = a + b and difference = a - b, of f32 [n]."""
    f32 = TensorProto.FLOAT
    return save(
        path,
        [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
        [value("a", f32, "n"), value("b", f32, "n")],
        [value("sum", f32, "n"), value("difference", f32, "n")],
    )


def next_graph(path: Path) -> Path:
    """A language model that knows one thing: after token t comes t + 1, plus whatever `bias` says."""
    f32, i64, i32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
    successor = np.roll(np.eye(VOCABULARY, dtype=np.float32), 1, axis=1)
    constants = [
        onnx.numpy_helper.from_array(successor, "successor"),
        onnx.numpy_helper.from_array(np.array([-1], np.int64), "last"),
    ]
    nodes = [
        helper.make_node("Gather", ["input_ids", "last"], ["token"], axis=1),
        helper.make_node("Gather", ["successor", "token"], ["known"]),
        helper.make_node("Add", ["known", "bias"], ["logits"]),
        helper.make_node("Identity", ["past.0.k"], ["present.0.k"]),
        helper.make_node("Identity", ["past.0.v"], ["present.0.v"]),
    ]
    inputs = [
        value("input_ids", i64, 1, "s"),
        value("seqlens_k", i32, 1),
        value("total_len", i32),
        value("past.0.k", f32, 1, 1, "p", 2),
        value("past.0.v", f32, 1, 1, "p", 2),
        value("bias", f32, 1, 1, VOCABULARY),
    ]
    outputs = [
        value("logits", f32, 1, 1, VOCABULARY),
        value("present.0.k", f32, 1, 1, "p", 2),
        value("present.0.v", f32, 1, 1, "p", 2),
    ]
    return save(path, nodes, inputs, outputs, constants)


def tokenizer_file(path: Path) -> Path:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    letters = {letter: index for index, letter in enumerate("abcdef")}
    library = Library(models.BPE(letters, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<end>"])
    library.save(str(path))
    return path


@pytest.fixture
def models(box: Any, tmp_path: Path) -> Iterator[Any]:
    """The box's unit with graphs `sums`, `words` (a sequence with a tokenizer) and the kernel `logmel`."""
    with box.arena.lease(GRANULE, owner="gate") as page:
        lane = MeteredLane("best-effort", (), Gate(page.buffer.address, 1), True)
        sums = OnnxExecutor(sum_graph(tmp_path / "sum.onnx"), threads=1, lane=lane, name="sums")
        words = SequenceEngine(
            next_graph(tmp_path / "next.onnx"),
            context=CONTEXT,
            slots=1,
            threads=1,
            lane=lane,
            arena=box.arena,
            name="words",
        )
        tokenizer = Tokenizer(tokenizer_file(tmp_path / "tokenizer.json"))
        box.unit = replace(
            box.unit,
            graphs={
                "sums": Graph("sums", executor=sums),
                "words": Graph("words", sequences=words, tokenizer=tokenizer),
            },
            kernels={"image_preprocess": kernel("image_preprocess", lane)},
        )
        yield box
        words.close()
        sums.close()


def floats(guest: Any, *values: float) -> str:
    """An expression: the handle of a new f32 tensor with these values. Uses $d."""
    data = guest.at(struct.pack(f"<{len(values)}f", *values))
    shape = guest.ints(len(values))
    return (
        f"(block (result i32) (local.set $d (call $tensor_new (i32.const 1) (i32.const 1) {shape}))"
        f"(memory.copy (call $tensor_map (local.get $d) (i32.const 1)) (i32.const {data})"
        f" (i32.const {4 * len(values)})) (local.get $d))"
    )


def at(address: int, expression: str) -> str:
    """An expression that stores another's value, and gives it on."""
    where = f"(i32.const {address})"
    return f"(block (result i32) (i32.store {where} {expression}) (i32.load {where}))"


def load(expression: str, count: int) -> list[str]:
    """Expressions for the first words that a tensor has."""
    first = f"(local.set $c (call $tensor_map {expression} (i32.const 0)))"
    return [
        f"(block (result i32) {first if not index else ''} (i32.load offset={4 * index} (local.get $c)))"
        for index in range(count)
    ]


def as_floats(words: list[int]) -> list[float]:
    return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}i", *words)))


def sums(guest: Any, a: str, b: str, out: tuple[str, str]) -> list[str]:
    """Expressions that run `sums`: inputs at 8192, outputs at 8200; the last is graph_run's result."""
    return [
        at(8192, a),
        at(8196, b),
        at(8200, out[0]),
        at(8204, out[1]),
        f"(call $graph_run (call $graph {guest.text('sums')})"
        " (i32.const 8192) (i32.const 2) (i32.const 8200) (i32.const 2))",
    ]


def test_graphs_describe_themselves(models: Any, guest: Any) -> None:
    for name, expected in (
        (
            "sums",
            {
                "kind": "graph",
                "inputs": [{"name": n, "dtype": 1, "shape": [-1]} for n in ("a", "b")],
                "outputs": [{"name": n, "dtype": 1, "shape": [-1]} for n in ("sum", "difference")],
            },
        ),
        ("words", {"kind": "sequence", "context": CONTEXT, "vocabulary": VOCABULARY, "bound": ["bias"]}),
    ):
        module = guest.wasm(
            f"(call $reply (i32.const 8192) (call $graph_info (call $graph {guest.text(name)})"
            " (i32.const 8192) (i32.const 2000)))"
        )
        assert json.loads(models.handle(module).reply) == expected


def test_a_graphs_handle_is_the_same_each_time(models: Any, guest: Any) -> None:
    first, again, other = models.results(
        guest.results(*(f"(call $graph {guest.text(name)})" for name in ("sums", "sums", "words")))
    )
    assert first == again != other


def test_a_graph_runs_into_new_tensors(models: Any, guest: Any) -> None:
    module = guest.results(
        *sums(guest, floats(guest, 1.5, 2), floats(guest, 3, 4), ("(i32.const 0)", "(i32.const 0)")),
        *load("(i32.load (i32.const 8200))", 2),
        *load("(i32.load (i32.const 8204))", 2),
    )
    *_, ok, sum0, sum1, difference0, difference1 = models.results(module)
    assert ok == 0
    assert as_floats([sum0, sum1, difference0, difference1]) == [4.5, 6, -1.5, -2]


def test_an_output_in_place_is_filled_again_and_again(models: Any, guest: Any) -> None:
    module = guest.results(
        at(9000, floats(guest, 0, 0)),
        "(local.tee $b (call $tensor_map (i32.load (i32.const 9000)) (i32.const 1)))",
        *sums(
            guest, floats(guest, 1, 2), floats(guest, 3, 4), ("(i32.load (i32.const 9000))", "(i32.const -1)")
        ),
        "(i32.load (local.get $b))",
        *sums(
            guest, floats(guest, 5, 5), floats(guest, 6, 6), ("(i32.load (i32.const 9000))", "(i32.const -1)")
        ),
        "(i32.load (local.get $b))",
        "(i32.load (i32.const 8204))",
    )
    results = models.results(module)
    assert (results[6], results[12]) == (0, 0)
    assert as_floats([results[7], results[13]]) == [4, 11]
    assert results[14] == -1


def test_an_input_can_be_a_part_of_the_request(models: Any, guest: Any) -> None:
    part = models.part(struct.pack("<2f", 10, 20), dtype=1, shape=(2,))
    module = guest.results(
        *sums(
            guest,
            "(call $part_tensor (i32.const 0))",
            floats(guest, 1, 2),
            ("(i32.const 0)", "(i32.const -1)"),
        ),
        *load("(i32.load (i32.const 8200))", 2),
    )
    assert as_floats(models.results(module, part)[5:]) == [11, 22]


def test_what_was_an_input_can_be_no_output(models: Any, guest: Any) -> None:
    module = guest.results(
        *sums(
            guest, floats(guest, 1, 2), floats(guest, 3, 4), ("(i32.load (i32.const 8192))", "(i32.const 0)")
        ),
    )
    assert models.results(module)[-1] == -Errno.EROFS


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("(i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 2)", Errno.EINVAL),
        ("(i32.const 8192) (i32.const 2) (i32.const 8200) (i32.const 1)", Errno.EINVAL),
        ("(i32.const 8192) (i32.const -1) (i32.const 8200) (i32.const 2)", Errno.E2BIG),
        ("(i32.const 8192) (i32.const 2) (i32.const 0x7fffff00) (i32.const 2)", Errno.EFAULT),
        ("(i32.const 8200) (i32.const 2) (i32.const 8200) (i32.const 2)", Errno.EBADF),
        ("(i32.const 8192) (i32.const 2) (i32.const 8208) (i32.const 2)", Errno.EINVAL),
        ("(i32.const 8192) (i32.const 2) (i32.const 8216) (i32.const 2)", Errno.EBADF),
    ],
)
def test_a_graph_refuses_what_does_not_fit(models: Any, guest: Any, arguments: str, expected: Errno) -> None:
    module = guest.results(
        at(8192, floats(guest, 1, 2)),
        at(8196, floats(guest, 1, 2)),
        at(8200, "(i32.const 0)"),
        at(8208, floats(guest, 0, 0)),
        at(8212, "(i32.load (i32.const 8208))"),
        at(8216, "(i32.const -2)"),
        f"(call $graph_run (call $graph {guest.text('sums')}) {arguments})",
    )
    assert models.results(module)[-1] == -expected


def test_a_graph_names_the_tensor_that_does_not_fit(models: Any, guest: Any) -> None:
    *before, run = sums(
        guest, floats(guest, 1, 2), "(call $part_tensor (i32.const 0))", ("(i32.const 0)",) * 2
    )
    module = guest.wasm("".join(f"(drop {each})" for each in before) + run)
    with pytest.raises(UsageError, match=r"input 'b': expected f32 \[any\], got u8 \[3\]"):
        models.handle(module, models.part(b"abc"))


def test_a_sequence_is_no_graph_to_run_and_a_graph_no_sequence(models: Any, guest: Any) -> None:
    module = guest.results(
        f"(call $graph_run (call $graph {guest.text('words')})"
        " (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
        f"(call $seq_open (call $graph {guest.text('sums')}) (i32.const 4) (i32.const 0) (i32.const 0))",
        f"(call $text_token (call $graph {guest.text('sums')}) {guest.text('a')})",
    )
    assert models.results(module) == [-Errno.EINVAL] * 3


def test_a_granted_kernel_runs_and_another_does_not(models: Any, guest: Any) -> None:
    pixels = models.part(bytes(range(48)), dtype=3, shape=(4, 4, 3))
    example = {"size": [2, 2], "mode": "stretch"}
    module = guest.results(
        at(8192, "(call $part_tensor (i32.const 0))"),
        at(8200, "(i32.const 0)"),
        f"(call $kernel_run {guest.text('logmel')} {guest.text('{}')}"
        " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1))",
        f"(call $kernel_run {guest.text('image_preprocess')} {guest.text('[1]')}"
        " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1))",
        f"(call $kernel_run {guest.text('image_preprocess')} {guest.text('{')}"
        " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1))",
        f"(call $kernel_run {guest.text('image_preprocess')} {guest.text(json.dumps(example))}"
        " (i32.const 8192) (i32.const 1) (i32.const 8200) (i32.const 1))",
        "(i32.gt_s (i32.load (i32.const 8200)) (i32.const 0))",
    )
    results = models.results(module, pixels)
    assert results[2:5] == [-Errno.EACCES, -Errno.EINVAL, -Errno.EINVAL]
    assert results[5:] == [0, 1]


def test_text_becomes_tokens_and_tokens_text(models: Any, guest: Any) -> None:
    encode = "(call $text_encode (local.get $a) {} (i32.const 8192) (i32.const 3))"
    decode = "(call $text_decode (local.get $a) {} (i32.const 8192) (i32.const 9))"
    module = guest.results(
        f"(local.tee $a (call $graph {guest.text('words')}))",
        encode.format(guest.text("face")),
        *(f"(i32.load (i32.const {8192 + 4 * index}))" for index in range(4)),
        f"(call $text_token (local.get $a) {guest.text('<end>')})",
        f"(call $text_token (local.get $a) {guest.text('<other>')})",
        decode.format(f"{guest.ints(1, 4, 3)} (i32.const 3)"),
        "(i32.load (i32.const 8192))",
        encode.format(guest.text(b"a\xff")),
        encode.format("(i32.const 0) (i32.const 0x100001)"),
        decode.format(f"{guest.ints(-5)} (i32.const 1)"),
    )
    _, count, *ids, end, other, length, word, not_text, too_long, no_token = models.results(module)
    assert (count, ids) == (4, [5, 0, 2, 0]), "three fit, all four are counted"
    assert (end, other) == (6, -Errno.ENOENT)
    assert (length, word.to_bytes(4, "little")[:3]) == (3, b"bed")
    assert (not_text, too_long, no_token) == (-Errno.EILSEQ, -Errno.E2BIG, -Errno.EINVAL)


def opened(guest: Any, bias: str, most: int = CONTEXT) -> list[str]:
    """Expressions that open `words` with a bound input; $a is the sequence from then on."""
    return [
        at(8192, bias),
        f"(local.tee $a (call $seq_open (call $graph {guest.text('words')}) (i32.const {most})"
        " (i32.const 8192) (i32.const 1)))",
    ]


def bias(guest: Any, *favoured: int) -> str:
    """A bound input that makes some tokens likelier than any other. Uses $d."""
    data = guest.at(struct.pack(f"<{VOCABULARY}f", *(9.0 * (t in favoured) for t in range(VOCABULARY))))
    return (
        "(block (result i32)"
        f" (local.set $d (call $tensor_new (i32.const 1) (i32.const 3) {guest.ints(1, 1, VOCABULARY)}))"
        f"(memory.copy (call $tensor_map (local.get $d) (i32.const 1)) (i32.const {data})"
        f" (i32.const {4 * VOCABULARY})) (local.get $d))"
    )


def feed(guest: Any, *ids: int, logits: str = "(i32.const 0)") -> str:
    return f"(call $seq_feed (local.get $a) {guest.ints(*ids)} (i32.const {len(ids)}) {logits})"


def drawn(guest: Any, params: str = "") -> str:
    return f"(call $seq_sample (local.get $a) {guest.text(params)} (i32.const 8400) (i32.const 500))"


def test_a_sequence_is_fed_and_sampled(models: Any, guest: Any) -> None:
    module = guest.results(
        *opened(guest, bias(guest)),
        drawn(guest),
        feed(guest, 1, 2),
        drawn(guest),
        feed(guest, 3),
        drawn(guest),
        "(call $seq_close (local.get $a))",
        drawn(guest),
    )
    handle, sequence, early, *results = models.results(module)
    assert handle > 0
    assert sequence > 0
    assert early == -Errno.EINVAL
    assert results == [0, 3, 0, 4, 0, -Errno.EBADF]


def test_bound_inputs_come_by_name_too_and_once(models: Any, guest: Any) -> None:
    bind = f"(call $seq_bind (local.get $a) {guest.text('bias')} (local.get $b))"
    module = guest.results(
        f"(local.tee $a (call $seq_open (call $graph {guest.text('words')}) (i32.const 9)"
        " (i32.const 0) (i32.const 0)))",
        f"(local.tee $b {bias(guest, 6)})",
        feed(guest, 1),
        f"(call $seq_bind (local.get $a) {guest.text('nothing')} (local.get $b))",
        bind,
        "(call $tensor_drop (local.get $b))",
        feed(guest, 1),
        drawn(guest),
        f"(call $seq_bind (local.get $a) {guest.text('bias')} {bias(guest, 5)})",
    )
    _, _, unbound, unknown, bound, dropped, fed, token, late = models.results(module)
    assert (unbound, unknown) == (-Errno.EINVAL, -Errno.ENOENT)
    assert (bound, dropped, fed) == (0, 0, 0), "the sequence holds what it reads, its handle may go"
    assert token == 6
    assert late == -Errno.EBUSY


def test_logits_go_into_a_tensor_too(models: Any, guest: Any) -> None:
    module = guest.results(
        *opened(guest, bias(guest)),
        f"(local.tee $b {floats(guest, *(0.0,) * VOCABULARY)})",
        feed(guest, 4, logits="(local.get $b)"),
        *load("(local.get $b)", VOCABULARY),
        feed(guest, 5, logits="(local.get $b)"),
        feed(guest, 5, logits="(local.get $a)"),
        feed(guest, 5, logits=floats(guest, 1, 2)),
    )
    _, _, _, fed, *logits, frozen, no_tensor, wrong = models.results(module)
    assert fed == 0
    assert as_floats(logits) == [0, 0, 0, 0, 0, 1, 0, 0]
    assert (frozen, no_tensor, wrong) == (-Errno.EROFS, -Errno.EBADF, -Errno.EINVAL)


def test_sampling_takes_a_mask_that_may_change(models: Any, guest: Any) -> None:
    module = guest.results(
        *opened(guest, bias(guest)),
        f"(local.tee $b (call $tensor_new (i32.const 3) (i32.const 1) {guest.ints(VOCABULARY)}))",
        "(local.tee $c (call $tensor_map (local.get $b) (i32.const 1)))",
        feed(guest, 4),
        "(block (result i32) (i32.store8 offset=7 (local.get $c) (i32.const 1)) (i32.const 0))",
        drawn(guest, '{"mask":4}'),
        "(block (result i32) (i32.store8 offset=5 (local.get $c) (i32.const 1)) (i32.const 0))",
        drawn(guest, '{"mask":4}'),
        drawn(guest, '{"suppress":[5],"max_id":5}'),
    )
    _, _, mask, _, _, _, first, _, second, suppressed = models.results(module)
    assert mask == 4
    assert (first, second, suppressed) == (7, 5, 0)


def test_sampling_tells_probabilities(models: Any, guest: Any) -> None:
    expressions = [*opened(guest, bias(guest, 6)), feed(guest, 4), drawn(guest, '{"logprobs":2}')]
    module = guest.wasm(
        "".join(f"(drop {each})" for each in expressions) + "(call $reply (i32.const 8400) (i32.const 200))"
    )
    report = json.loads(models.handle(module).reply.partition(b"\0")[0])
    assert report["logprob"] == pytest.approx(9 - np.log(np.e**9 + np.e + 6), abs=1e-5)
    assert [token for token, _ in report["top"]] == [6, 5]
    assert report["top"][0][1] - report["top"][1][1] == pytest.approx(8, abs=1e-4)


def test_drawing_with_a_seed_is_the_same_every_time(models: Any, guest: Any) -> None:
    params = json.dumps({"temperature": 1.0, "seed": 11})
    module = guest.results(
        *opened(guest, bias(guest)), feed(guest, 1), *(drawn(guest, params) for _ in range(20))
    )
    first = models.results(module)[3:]
    assert models.results(module)[3:] == first
    assert len(set(first)) > 1


def test_without_a_seed_the_jobs_own_decides(models: Any, guest: Any) -> None:
    params = json.dumps({"temperature": 1.0})
    module = guest.results(
        *opened(guest, bias(guest)), feed(guest, 1), *(drawn(guest, params) for _ in range(20))
    )
    runs = [models.results(module, seed=seed)[3:] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(call $seq_feed (local.get $a) (i32.const 8192) (i32.const 0) (i32.const 0))", Errno.EINVAL),
        ("(call $seq_feed (local.get $a) (i32.const -16) (i32.const 8) (i32.const 0))", Errno.EFAULT),
        ("(call $seq_feed (local.get $a) (i32.const 0) (i32.const -1) (i32.const 0))", Errno.E2BIG),
        (
            "(call $seq_sample (local.get $a) (i32.const 0) (i32.const -1) (i32.const 0) (i32.const 0))",
            Errno.E2BIG,
        ),
        ("(call $seq_bind (local.get $a) (i32.const 0) (i32.const 0) (local.get $a))", Errno.EBUSY),
    ],
)
def test_nonsense_to_a_sequence_gets_an_errno(
    models: Any, guest: Any, expression: str, expected: Errno
) -> None:
    module = guest.results(*opened(guest, bias(guest)), feed(guest, 1), expression)
    assert models.results(module)[-1] == -expected


def test_bad_tokens_bad_parameters_and_small_buffers_get_an_errno(models: Any, guest: Any) -> None:
    sample = "(call $seq_sample (local.get $a) {} (i32.const 8400) (i32.const {}))"
    module = guest.results(
        *opened(guest, bias(guest)),
        feed(guest, 1),
        feed(guest, VOCABULARY),
        feed(guest, -1),
        sample.format(guest.text("{"), 9),
        sample.format(guest.text('{"temperature":"hot"}'), 9),
        sample.format(guest.text('{"mask":77}'), 9),
        sample.format(guest.text('{"logprobs":3}'), 9),
        drawn(guest),
    )
    *_, high, low, syntax, kind, mask, room, token = models.results(module)
    assert [high, low, syntax, kind] == [-Errno.EINVAL] * 4
    assert (mask, room, token) == (-Errno.EBADF, -Errno.E2BIG, 2)


def test_a_sequence_holds_so_many_tokens(models: Any, guest: Any) -> None:
    words = f"(call $graph {guest.text('words')})"
    module = guest.results(
        f"(call $seq_open {words} (i32.const {CONTEXT + 1}) (i32.const 0) (i32.const 0))",
        f"(call $seq_open {words} (i32.const 0) (i32.const 0) (i32.const 0))",
        *opened(guest, bias(guest), most=3),
        feed(guest, 1, 2, 3),
        feed(guest, 4),
    )
    too_many, none, *_, fed, full = models.results(module)
    assert (too_many, none, fed, full) == (-Errno.E2BIG, -Errno.E2BIG, 0, -Errno.E2BIG)


def test_passing_on_that_a_prompt_is_too_long_tells_the_caller_so(models: Any, guest: Any) -> None:
    module = guest.wasm(
        f"(call $seq_open (call $graph {guest.text('words')}) (i32.const 999) (i32.const 0) (i32.const 0))"
    )
    with pytest.raises(TooLarge, match="1 to 16 tokens, not 999"):
        models.handle(module)


def test_waiting_for_a_free_sequence_ends_at_the_deadline(models: Any, guest: Any) -> None:
    """There is one slot, and the guest holds it itself."""
    module = guest.results(*opened(guest, bias(guest)), *opened(guest, bias(guest)))
    run = models.handle(module, seconds=0.3)
    assert struct.unpack("<4i", run.reply)[-1] == -Errno.EAGAIN
    assert run.stages.gate > 100_000, "waiting isn't computing"
    module = guest.wasm(
        "".join(f"(drop {each})" for each in 2 * opened(guest, bias(guest)))
        + "(loop $on (br $on)) (i32.const 0)"
    )
    with pytest.raises(DeadlineExceeded):
        models.handle(module, seconds=0.3)


def test_whatever_happens_sequences_and_tensors_come_back(models: Any, guest: Any) -> None:
    before = models.arena.count
    begin = "".join(f"(drop {each})" for each in [*opened(guest, bias(guest)), feed(guest, 1)])
    for ending in ("unreachable", "(i32.const -28)", "(loop $on (br $on)) (i32.const 0)"):
        with pytest.raises(MeshError):
            models.handle(guest.wasm(begin + ending), seconds=1.0)
        assert models.arena.count == before
    # The only slot is free again.
    module = guest.results(*opened(guest, bias(guest)), feed(guest, 1), drawn(guest))
    assert models.results(module, seconds=5.0)[-1] == 2


def test_device_time_is_told_apart_from_the_rest(models: Any, guest: Any) -> None:
    module = guest.results(
        *sums(guest, floats(guest, 1, 2), floats(guest, 3, 4), ("(i32.const 0)", "(i32.const 0)"))
    )
    stages = models.handle(module).stages
    assert stages.kernel > 0
    assert stages.bridge > 0
    assert stages.sandbox > 0


def test_onnxruntimes_telemetry_is_off() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
