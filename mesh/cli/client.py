"""How the command line reaches a running node: plain HTTP, the standard library only."""

from __future__ import annotations

import http.client
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from hailmesh.hail.errors import MeshError, UsageError, from_wire
from hailmesh.mesh.config import Config
from hailmesh.mesh.state import TOKEN_FILE


class UnreachableError(MeshError):
    code = "unreachable"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a multipart upload."""

    name: str
    media_type: str
    data: bytes

    @classmethod
    def read(cls, path: Path) -> File:
        """The media type goes by the file's ending; the unit looks at the bytes anyway."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"can't read {path}: {error.strerror}") from None
        return cls(path.name, _TYPES.get(path.suffix.lower(), "application/octet-stream"), data)


class Client:
    """Talks to the node at `url`; `token` is for management calls, `key` for inference if it needs one."""

    def __init__(self, url: str, *, token: str = "", key: str = "") -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._key = key

    @classmethod
    def of(cls, config: Config) -> Client:
        """The node of this configuration; HAILMESH_URL, HAILMESH_TOKEN and HAILMESH_API_KEY come first."""
        url = os.environ.get("HAILMESH_URL", f"http://{config.host}:{config.port}")
        token = os.environ.get("HAILMESH_TOKEN", "")
        path = config.state / TOKEN_FILE
        if not token and path.exists():
            try:
                token = path.read_text(encoding="utf-8").strip()
            except PermissionError:
                token = ""
        key = os.environ.get("HAILMESH_API_KEY", config.api_keys[0] if config.api_keys else "")
        return cls(url, token=token, key=key)

    def call(
        self, method: str, path: str, *, body: Any = None, manage: bool = False, **query: Any
    ) -> dict[str, Any]:
        """One JSON exchange. Raises the MeshError that the node's answer names."""
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, path, data, "application/json", manage=manage, **query) as response:
            return _answer(response)

    def upload(self, path: str, fields: Mapping[str, str | Path | File], **query: Any) -> dict[str, Any]:
        """A multipart POST: a Path or File is sent as a file, a str as a text field."""
        body, content_type = _multipart(fields)
        with self._open("POST", path, body, content_type, **query) as response:
            return _answer(response)

    def stream(self, path: str, *, body: Any = None, method: str = "POST") -> Iterator[dict[str, Any]]:
        """The `data:` objects of a server-sent event stream, until [DONE] or its end."""
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, path, data, "application/json") as response:
            if response.status >= 400:
                _answer(response)
            event = ""
            for raw in response:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("event:"):
                    event = line[6:].strip()
                elif line.startswith("data:"):
                    text = line[5:].strip()
                    if text == "[DONE]":
                        return
                    value = json.loads(text)
                    if event == "error":
                        raise _error(value, response.status)
                    yield value
                elif not line:
                    event = ""

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content_type: str,
        *,
        manage: bool = False,
        **query: Any,
    ) -> Iterator[http.client.HTTPResponse]:
        split = urlsplit(self.url)
        kind = http.client.HTTPSConnection if split.scheme == "https" else http.client.HTTPConnection
        connection = kind(split.hostname or "127.0.0.1", split.port, timeout=600)
        given = {name: value for name, value in query.items() if value is not None}
        target = path + (f"?{urlencode(given)}" if given else "")
        headers = {"Content-Type": content_type} if data is not None else {}
        secret = self._token if manage else self._key
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        try:
            connection.request(method, target, body=data, headers=headers)
            response = connection.getresponse()
        except OSError as error:
            connection.close()
            raise UnreachableError(
                f"no node answers at {self.url} ({error}): start one with 'hailmesh up'"
            ) from None
        try:
            yield response
        finally:
            connection.close()


def _multipart(fields: Mapping[str, str | Path | File]) -> tuple[bytes, str]:
    boundary = uuid.uuid4().hex
    out = bytearray()
    for name, value in fields.items():
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        if isinstance(value, str):
            out += b"\r\n\r\n" + value.encode()
        else:
            file = File.read(value) if isinstance(value, Path) else value
            out += f'; filename="{file.name}"\r\nContent-Type: {file.media_type}\r\n\r\n'.encode()
            out += file.data
        out += b"\r\n"
    out += f"--{boundary}--\r\n".encode()
    return bytes(out), f"multipart/form-data; boundary={boundary}"


_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".bmp": "image/bmp",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".txt": "text/plain",
}


def _answer(response: http.client.HTTPResponse) -> dict[str, Any]:
    raw = response.read()
    try:
        value: dict[str, Any] = json.loads(raw) if raw else {}
    except ValueError:
        value = {"error": {"code": "error", "message": raw[:200].decode("utf-8", "replace")}}
    if response.status >= 400:
        raise _error(value, response.status)
    return value


def _error(value: dict[str, Any], status: int) -> MeshError:
    error = value.get("error", value)
    if isinstance(error, str):
        error = {"message": error}
    return from_wire(
        str(error.get("code", "error")), str(error.get("message", f"the node answered {status}"))
    )
