"""What an arena says of itself: who holds how much, how scattered it is, what is kept for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """Where a block's content stands on its way through a request."""

    CAPTURE = "capture"
    ALIGN = "align"
    FUSE = "fuse"
    INFER = "infer"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of whole granules: held now, at most so far, and held past their last reader."""

    used: int = 0
    peak: int = 0
    redundant: int = 0
    leases: int = 0
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class ArenaReport:
    """Bytes. `resident`: pages the whole memfd has now, over all processes; `peak_resident`: the most seen
    whenever a large block came back or a report was made. `redundancy`: byte-seconds that blocks were kept
    after their last reader, since the start. `fragmentation`: 1 - largest free / total free."""

    size: int
    used: int
    peak_used: int
    free: int
    largest_free: int
    fragmentation: float
    count: int
    quarantined: int
    resident: int
    peak_resident: int
    redundant: int
    redundancy: float
    stages: Mapping[Stage, Usage]
    owners: Mapping[str, Usage]
    modalities: Mapping[str, Usage]
