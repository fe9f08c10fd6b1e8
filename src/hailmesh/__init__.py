"""hailmesh: an edge inference mesh. The code lives in the root folders; see docs/architecture.md."""

__version__ = "0.1.0"
