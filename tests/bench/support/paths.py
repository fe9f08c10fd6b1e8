"""Where things lie that benchmarks use."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
STATE = BUILD / "node"
PEERS = BUILD / "peers"
