"""Which shapes a graph's outputs will have, told before it runs so that they can be bound in place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import Lock

Shape = tuple[int, ...]
Declared = Sequence[int | str | None]
"""A shape as a model declares it: numbers, names of free dimensions, or nothing known."""

_REMEMBERED = 256


class OutputShapes:
    """Follows the names of free dimensions from inputs to outputs; what that doesn't tell it learns from the
    runs, by the shapes of their inputs. An output that came out differently for equal input shapes depends
    on the data, and is never predicted again. Thread-safe."""

    def __init__(self, inputs: Sequence[Declared], outputs: Sequence[Declared]) -> None:
        self._inputs = [tuple(shape) for shape in inputs]
        self._outputs = [tuple(shape) for shape in outputs]
        self._seen: dict[tuple[Shape, ...], list[Shape | None]] = {}
        self._unpredictable: set[int] = set()
        self._lock = Lock()

    def predict(self, given: tuple[Shape, ...]) -> list[Shape | None]:
        """The outputs' shapes for inputs of the `given` ones; None where it isn't known."""
        with self._lock:
            known = self._seen.get(given)
            if known is None:
                known = self._follow(given)
                self._remember(given, known)
            return [None if i in self._unpredictable else shape for i, shape in enumerate(known)]

    def learn(self, given: tuple[Shape, ...], index: int, shape: Shape) -> None:
        """Output `index` came out with `shape`."""
        with self._lock:
            known = self._seen.get(given)
            if known is None:
                known = self._follow(given)
                self._remember(given, known)
            if known[index] not in (None, shape):
                self._unpredictable.add(index)
            known[index] = shape

    def _follow(self, given: tuple[Shape, ...]) -> list[Shape | None]:
        sizes: dict[str, int] = {}
        torn = set()
        for declared, actual in zip(self._inputs, given, strict=True):
            for name, size in zip(declared, actual, strict=True):
                if isinstance(name, str) and sizes.setdefault(name, size) != size:
                    torn.add(name)
        for name in torn:
            del sizes[name]
        return [self._resolve(declared, sizes) for declared in self._outputs]

    @staticmethod
    def _resolve(declared: tuple[int | str | None, ...], sizes: dict[str, int]) -> Shape | None:
        resolved = [sizes.get(size) if isinstance(size, str) else size for size in declared]
        known = tuple(size for size in resolved if size is not None and size >= 0)
        return known if len(known) == len(resolved) else None

    def _remember(self, given: tuple[Shape, ...], shapes: list[Shape | None]) -> None:
        if len(self._seen) >= _REMEMBERED:
            for oldest in list(islice(self._seen, _REMEMBERED // 4)):
                del self._seen[oldest]
        self._seen[given] = shapes
