"""faster-whisper behind a line protocol, for its own virtual environment, which has nothing of ours.

    whisper_server.py MODEL_FOLDER THREADS

prints `ready`; for each line with the path of a WAV file it transcribes it, and prints JSON: seconds, text.
"""

from __future__ import annotations

import json
import sys
import time

from faster_whisper import WhisperModel  # type: ignore[import-not-found]


def main() -> None:
    folder, threads = sys.argv[1], int(sys.argv[2])
    model = WhisperModel(
        folder, device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
    )
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        segments, _ = model.transcribe(
            line.rstrip("\n"),
            language="en",
            beam_size=1,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        text = "".join(segment.text for segment in segments).strip()
        print(json.dumps({"seconds": time.perf_counter() - began, "text": text}), flush=True)


if __name__ == "__main__":
    main()
