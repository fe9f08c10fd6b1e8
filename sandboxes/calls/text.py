"""Calls to the tokenizer that belongs to a sequence graph."""

from __future__ import annotations

import struct

from hailmesh.sandboxes.context import Context
from hailmesh.sandboxes.errno import CallError, Errno
from hailmesh.sandboxes.unit import Graph, Tokenizer

MAX_TEXT = 1 << 20
MAX_IDS = 1 << 20
MAX_TOKEN = 1 << 10


def text_encode(context: Context, handle: int, text: int, length: int, ids: int, capacity: int) -> int:
    tokenizer = _tokenizer(context, handle)
    encoded = tokenizer.encode(context.memory.text(text, length, MAX_TEXT))
    written = encoded[:capacity]
    context.memory.write(ids, struct.pack(f"<{len(written)}i", *written))
    return len(encoded)


def text_token(context: Context, handle: int, name: int, length: int) -> int:
    wanted = context.memory.text(name, length, MAX_TOKEN)
    token = _tokenizer(context, handle).token(wanted)
    if token is None:
        raise CallError(Errno.ENOENT, f"the tokenizer has no token {wanted!r}")
    return token


def text_decode(context: Context, handle: int, ids: int, count: int, buffer: int, capacity: int) -> int:
    tokenizer = _tokenizer(context, handle)
    text = tokenizer.decode_bytes(context.memory.integers(ids, count, MAX_IDS))
    return context.memory.fill(buffer, capacity, text)


def _tokenizer(context: Context, handle: int) -> Tokenizer:
    graph = context.handles.get(handle, Graph)
    if graph.tokenizer is None:
        raise CallError(Errno.EINVAL, f"graph {graph.name!r} has no tokenizer")
    return graph.tokenizer
