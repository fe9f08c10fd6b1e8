"""The classify request that several benchmarks send."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from bench.support.paths import BUILD, PEERS

MESH = "/v1/invoke?modalities=image"


def picture() -> bytes:
    """A JPEG of 640×480 at quality 90; made once."""
    path = PEERS / "coffee-640x480.jpg"
    if not path.exists():
        from PIL import Image

        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(BUILD / "assets" / "coffee.png") as image:
            image.convert("RGB").resize((640, 480), Image.Resampling.LANCZOS).save(path, quality=90)
    return path.read_bytes()


def classify_request(url: str, path: str = MESH) -> Callable[[], httpx.Response]:
    """Sends the picture over one keep-alive connection; each call is one request. RuntimeError for any
    answer but 200."""
    # The unit's own deadline would end a request that a busy machine holds up.
    client = httpx.Client(base_url=url, timeout=60, headers={"X-Deadline-Ms": "60000"})
    content = picture()

    def request() -> httpx.Response:
        answer = client.post(path, files={"image": ("coffee.jpg", content, "image/jpeg")})
        if answer.status_code != 200:
            raise RuntimeError(f"{url}{path} answered {answer.status_code}: {answer.text}")
        return answer

    return request
