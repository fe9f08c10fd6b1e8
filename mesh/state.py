"""What a node keeps on disk besides its images: which units are active, and its admin token."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from hailmesh.hail.errors import DeviceError, MeshError

TOKEN_FILE = "admin.token"
ACTIVE_FILE = "active.json"


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces `path` so that a reader, or a power cut, sees the old content or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def admin_token(state: Path) -> str:
    """The token that management calls need, made at first use and readable by its owner alone."""
    path = state / TOKEN_FILE
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    token = secrets.token_urlsafe(32)
    write_atomic(path, token.encode() + b"\n", mode=0o600)
    return token


class ActiveUnits:
    """The units that come back when the node does: name → index digest."""

    def __init__(self, state: Path) -> None:
        self._path = state / ACTIVE_FILE
        self._units = self._read()

    def _read(self) -> dict[str, str]:
        try:
            units = dict(json.loads(self._path.read_text(encoding="utf-8"))["units"])
            for name, digest in units.items():
                if not isinstance(digest, str) or not digest.startswith("sha256:"):
                    raise ValueError(f"{name}: expected a digest, found {digest!r}")
            return units
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MeshError(
                f"{self._path} is damaged ({error}): remove it, start the node and plug the units again"
            ) from None

    def items(self) -> list[tuple[str, str]]:
        return list(self._units.items())

    def __contains__(self, name: str) -> bool:
        return name in self._units

    def set(self, name: str, digest: str) -> None:
        self._units[name] = digest
        self._write()

    def remove(self, name: str) -> None:
        if self._units.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        document = {"units": self._units}
        try:
            write_atomic(self._path, json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")
        except OSError as error:
            raise DeviceError(
                f"can't write {self._path} ({error.strerror}): what is plugged now is not remembered for the"
                " next start; make room there, or make it writable, and plug or unplug again"
            ) from None
