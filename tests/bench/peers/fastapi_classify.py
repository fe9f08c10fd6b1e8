"""A picture classifier as people write it: FastAPI, uvicorn, onnxruntime and Pillow, in one process.

    fastapi_classify.py UNIT_FOLDER THREADS

prints `ready on URL`. It does what the vision unit does to a picture, and answers the same JSON.
"""

from __future__ import annotations

import io
import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, UploadFile
from PIL import Image

SIZE, CROP, MEAN, STD, TOP = 224, 0.875, np.float32(127), np.float32(128), 5


def application(folder: Path, threads: int) -> FastAPI:
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["labels"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        str(folder / "classify.onnx"), options, providers=["CPUExecutionProvider"]
    )
    app = FastAPI()

    @app.post("/classify")
    async def classify(image: UploadFile) -> dict[str, Any]:
        tensor = preprocess(await image.read())
        (scores,) = session.run(["probs"], {"image": tensor})
        best = np.argsort(-scores[0], kind="stable")[:TOP]
        return {
            "labels": [
                {"label": labels[index], "score": float(scores[0][index]), "index": int(index)}
                for index in best
            ]
        }

    return app


def preprocess(content: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """f32 [1, 3, 224, 224]: the centred square, resized bicubically."""
    with Image.open(io.BytesIO(content)) as opened:
        picture = opened.convert("RGB")
    side = max(1, int(min(picture.size) * CROP))
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    box = (left, top, left + side, top + side)
    small = picture.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box)
    pixels = (np.asarray(small, np.float32) - MEAN) / STD
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def main() -> None:
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    app = application(folder, threads)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    print(f"ready on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    listener.listen(128)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
