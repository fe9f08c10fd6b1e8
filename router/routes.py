"""Routes: which unit, and which version of it, answers a modality, an alias or a name."""

from __future__ import annotations

from dataclasses import dataclass, field

from hailmesh.hail.errors import NotFound


@dataclass(frozen=True, slots=True)
class Route:
    unit: str
    version: str


@dataclass(slots=True)
class _Entry:
    modality: str
    aliases: frozenset[str]
    weights: dict[str, float] = field(default_factory=dict)


class Routes:
    """Names are looked up as unit, then alias, then modality; of several units of one modality, the one
    added first serves it."""

    def __init__(self) -> None:
        self._units: dict[str, _Entry] = {}

    def add(self, unit: str, version: str, modality: str, aliases: frozenset[str] = frozenset()) -> None:
        """All of the unit's traffic goes to this version."""
        self._units[unit] = _Entry(modality, aliases, {version: 1.0})

    def weigh(self, unit: str, weights: dict[str, float]) -> None:
        """Shares the unit's traffic between versions, in proportion to their weights (a canary)."""
        if not weights or min(weights.values()) < 0 or sum(weights.values()) <= 0:
            raise ValueError(f"expected weights of 0 or more that aren't all 0, found {weights}")
        self._units[unit].weights = dict(weights)

    def remove(self, unit: str) -> None:
        self._units.pop(unit, None)

    def pick(self, name: str, draw: float = 0.0) -> Route:
        """The route of a unit, alias or modality; `draw`, in [0, 1), decides between versions. NotFound
        lists what there is."""
        unit = self._resolve(name)
        weights = self._units[unit].weights
        at = draw * sum(weights.values())
        for version, weight in weights.items():
            at -= weight
            if at < 0:
                return Route(unit, version)
        return Route(unit, next(reversed(weights)))

    def _resolve(self, name: str) -> str:
        if name in self._units:
            return name
        for unit, entry in self._units.items():
            if name in entry.aliases:
                return unit
        for unit, entry in self._units.items():
            if name == entry.modality:
                return unit
        there = ", ".join(f"{unit} ({entry.modality})" for unit, entry in self._units.items())
        raise NotFound(f"no unit serves '{name}'; there are: {there or 'none, plug one'}")
