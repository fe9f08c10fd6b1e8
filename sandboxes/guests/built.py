"""Where the built generic guests lie: the folder `modules` beside this file, which travels in wheels."""

from __future__ import annotations

from pathlib import Path

from hailmesh.hail.errors import NotFound

FOLDER = Path(__file__).resolve().parent / "modules"
NAMES = ("vision", "llm", "asr")


def path(name: str) -> Path:
    """Where the guest's module is, or will be once it is built. NotFound if there is no such guest."""
    if name not in NAMES:
        raise NotFound(f"no generic guest {name!r}; there are {', '.join(NAMES)}")
    return FOLDER / f"{name}.wasm"


def find(name: str) -> Path:
    """The guest's module; NotFound, saying how to build it, if it isn't built."""
    module = path(name)
    if not module.is_file():
        raise NotFound(f"the guest {name!r} isn't built: run python -m hailmesh.sandboxes.guests.build")
    return module
