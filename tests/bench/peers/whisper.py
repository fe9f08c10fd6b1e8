"""faster-whisper: its virtual environment, and a process that transcribes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve()
VENV = _HERE.parents[3] / "build" / "peers" / "venv"
REQUIREMENT = "faster-whisper==1.2.1"


class Whisper:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def transcribe(self, path: Path) -> tuple[float, str]:
        """(seconds, text) of a WAV file. SystemExit if the process has ended."""
        found = json.loads(self._ask(f"{path}\n"))
        return float(found["seconds"]), str(found["text"])

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None, "both are piped"
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.read()

    def read(self) -> str:
        assert self.process.stdout is not None, "the output is piped"
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the whisper peer ended with {self.process.wait()}")
        return line


def ensure() -> Path:
    """The interpreter of the environment, made if it isn't there. SystemExit if pip fails."""
    python = VENV / "bin" / "python"
    if subprocess.run(_import(python), capture_output=True, check=False).returncode if python.exists() else 1:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        install = ["install", "--quiet", "--disable-pip-version-check", REQUIREMENT]
        if subprocess.run([str(python), "-m", "pip", *install], stdout=sys.stderr, check=False).returncode:
            raise SystemExit(f"pip couldn't install {REQUIREMENT} into {VENV}")
    return python


def _import(python: Path) -> list[str]:
    return [str(python), "-c", "import faster_whisper"]


@contextmanager
def whisper(model: Path, *, threads: int) -> Iterator[Whisper]:
    """A process with the model of a local CTranslate2 folder, in 8-bit."""
    command = [str(ensure()), str(_HERE.with_name("whisper_server.py")), str(model), str(threads)]
    environment: dict[str, Any] = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        peer = Whisper(process)
        peer.read()
        yield peer
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
