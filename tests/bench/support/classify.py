"""The classify request that several benchmarks send."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

from bench.support.paths import BUILD, PEERS

MESH = "/v1/invoke?modalities=image"
_BOUNDARY = "picture"


def picture() -> bytes:
    """A JPEG of 640×480 at quality 90; made once."""
    path = PEERS / "coffee-640x480.jpg"
    if not path.exists():
        from PIL import Image

        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(BUILD / "assets" / "coffee.png") as image:
            image.convert("RGB").resize((640, 480), Image.Resampling.LANCZOS).save(path, quality=90)
    return path.read_bytes()


def classify_request(url: str, path: str = MESH) -> Callable[[], dict[str, Any]]:
    """Sends the picture over one keep-alive connection; each call is one request and returns the answer's
    JSON. RuntimeError for any status but 200. The body is made once, and the client is the standard
    library's: what a client costs is added to both sides, and pulls their ratio towards 1."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = _multipart(picture())
    # The unit's own deadline would end a request that a busy machine holds up.
    headers = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}", "X-Deadline-Ms": "60000"}

    def request() -> dict[str, Any]:
        connection.request("POST", path, body, headers)
        with connection.getresponse() as answer:
            content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{url}{path} answered {answer.status}: {content!r}")
        found: dict[str, Any] = json.loads(content)
        return found

    return request


def _multipart(content: bytes) -> bytes:
    head = (
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="coffee.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()
