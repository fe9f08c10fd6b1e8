"""A sequence as its engine sees it, and the work it has left there. The engine's lock guards both."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hailmesh.hail.buffer import Buffer
from hailmesh.hail.cancel import CancelToken
from hailmesh.hail.errors import MeshError


@dataclass(slots=True, eq=False)
class Work:
    """Tokens that wait to be computed. `woken` is set when the work is done, may have ended, or `leads`: its
    thread is the one that takes the steps. While `running`, a step that it is part of is being taken."""

    ids: npt.NDArray[np.int64]
    token: CancelToken
    woken: threading.Event
    leads: bool = False
    running: bool = False
    done: bool = False
    error: MeshError | None = None

    def finish(self, error: MeshError | None = None) -> None:
        """Nothing more will happen to it."""
        self.done, self.error = True, error
        self.woken.set()


@dataclass(slots=True, eq=False)
class Seat:
    """`length` tokens are computed, of at most `limit`; `logits` float32 [vocabulary] are those after the
    last. `bound`: the graph's further inputs; `binding`: the runtime's, made when first needed. `last_step`:
    the number of the last step it was part of; `late`: it let others wait in vain since."""

    slot: int
    limit: int
    level: int
    logits: npt.NDArray[np.float32]
    length: int = 0
    bound: dict[str, Buffer] = field(default_factory=dict)
    binding: Any = None
    work: Work | None = None
    woken: threading.Event = field(default_factory=threading.Event)
    last_step: int = 0
    late: bool = False
    open: bool = True
