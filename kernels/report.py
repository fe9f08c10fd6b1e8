"""What a sequence engine tells about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Counted since the engine began: `steps`, and `chunks`, those of them that took part of a prompt;
    `tokens` computed; `riders`, rows computed for nothing between others; `moves` of a sequence to another
    slot. Now: `open` sequences, those `waiting` for a step, and requests `queued` for a slot."""

    steps: int = 0
    chunks: int = 0
    tokens: int = 0
    riders: int = 0
    moves: int = 0
    open: int = 0
    waiting: int = 0
    queued: int = 0
