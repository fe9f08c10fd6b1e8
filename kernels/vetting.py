"""What an ONNX file may contain before onnxruntime gets to see it.

Models are untrusted native input. This walks the file's protobuf fields (ONNX's own onnx.proto3 gives the
numbers) without building anything from them, and refuses what would leave the file (external data, compiled
contexts), operators from unknown domains, and unbounded loops.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from hailmesh.hail.errors import Denied, ImageError

DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
LOOPS = frozenset({"Loop", "Scan"})
_OUTSIDE = frozenset({"EPContext", "PythonOp", "PythonOpGrad"})
"""Operators of com.microsoft that load files or run code from elsewhere."""

_MAX_DEPTH = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_FUNCTION_NODE = 7
_NODE_OP, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14


def vet(source: int | Path, *, loops: bool = False) -> None:
    """Checks the ONNX model in a file or behind a descriptor. ImageError if it is not well-formed, Denied
    (with what was found) if it holds something that isn't allowed; `loops` allows Loop and Scan."""
    descriptor = source if isinstance(source, int) else os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            raise ImageError("the model file is empty")
        # Unmapped with its last view: an error's traceback may hold some of them for a while.
        _model(memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)), loops)
    finally:
        if not isinstance(source, int):
            os.close(descriptor)


def _model(view: memoryview, loops: bool) -> None:
    if bytes(view[4:8]) == b"ORTM":
        raise ImageError("the model is in onnxruntime's own .ort format; give the ONNX file it was made from")
    graphs = 0
    for number, value in _fields(view):
        if number == _MODEL_GRAPH:
            graphs += 1
            _graph(_message(value), loops, 0)
        elif number == _MODEL_FUNCTION:
            for inner, node in _fields(_message(value)):
                if inner == _FUNCTION_NODE:
                    _node(_message(node), loops, 0)
    if graphs != 1:
        raise ImageError(f"an ONNX model holds one graph, this file holds {graphs}: is it ONNX?")


def _graph(view: memoryview, loops: bool, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ImageError(f"the model nests graphs deeper than {_MAX_DEPTH}")
    for number, value in _fields(view):
        if number == _GRAPH_NODE:
            _node(_message(value), loops, depth)
        elif number == _GRAPH_INITIALIZER:
            _tensor(_message(value))
        elif number == _GRAPH_SPARSE:
            _sparse(_message(value))


def _node(view: memoryview, loops: bool, depth: int) -> None:
    operator = domain = ""
    attributes = []
    for number, value in _fields(view):
        if number == _NODE_OP:
            operator = _text(value)
        elif number == _NODE_DOMAIN:
            domain = _text(value)
        elif number == _NODE_ATTRIBUTE:
            attributes.append(_message(value))
    if domain not in DOMAINS:
        raise Denied(f"operator {domain}.{operator} is of a domain other than ai.onnx and com.microsoft")
    if operator in _OUTSIDE:
        raise Denied(f"operator {operator} would load what lies outside of the model")
    if operator in LOOPS and not loops:
        raise Denied(f"operator {operator} may run without end; this unit isn't allowed loops")
    for attribute in attributes:
        _attribute(attribute, loops, depth)


def _attribute(view: memoryview, loops: bool, depth: int) -> None:
    for number, value in _fields(view):
        if number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
            _graph(_message(value), loops, depth + 1)
        elif number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
            _tensor(_message(value))
        elif number in (_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES):
            _sparse(_message(value))


def _sparse(view: memoryview) -> None:
    for number, value in _fields(view):
        if number in (_SPARSE_VALUES, _SPARSE_INDICES):
            _tensor(_message(value))


def _tensor(view: memoryview) -> None:
    for number, value in _fields(view):
        if number == _TENSOR_EXTERNAL or (number == _TENSOR_LOCATION and value != 0):
            raise Denied("the model keeps weights in other files; put them into the ONNX file itself")


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, integer or bytes) for each field of a message; bytes are views, never copies."""
    at, end = 0, len(view)
    while at < end:
        key, at = _varint(view, at)
        wire = key & 7
        value: int | memoryview
        if wire == _VARINT:
            value, at = _varint(view, at)
        elif wire == _BYTES:
            length, at = _varint(view, at)
            if length > end - at:
                raise ImageError("the model file is cut short, or isn't ONNX")
            value = view[at : at + length]
            at += length
        elif wire in (_FIXED32, _FIXED64):
            value = 0
            at += 4 if wire == _FIXED32 else 8
        else:
            raise ImageError("the model file isn't ONNX: it has an unknown protobuf wire type")
        yield key >> 3, value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ImageError("the model file is cut short, or isn't ONNX")
        byte = view[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ImageError("the model file isn't ONNX: it has a number where a message belongs")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_message(value)).decode("utf-8", "replace")
