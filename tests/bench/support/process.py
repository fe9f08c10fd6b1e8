"""Processes that a benchmark measures: started, waited for, ended."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_READY = re.compile(r"ready on (http://\S+)")


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int


@contextmanager
def server(command: list[str], environment: Mapping[str, str]) -> Iterator[Server]:
    """A process that prints `ready on URL`; told to end at the end. SystemExit if it ends before that."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(environment))
    try:
        yield Server(_url(process), process.pid)
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _url(process: subprocess.Popen[str]) -> str:
    """What comes after the line is read and dropped, so that the process never waits for a reader."""
    output = process.stdout
    assert output is not None, "the output is piped"
    seen = []
    for line in output:
        seen.append(line)
        found = _READY.search(line)
        if found:
            threading.Thread(target=lambda: [None for _ in output], daemon=True).start()
            return found[1]
    raise SystemExit(f"{process.args!r} ended before it was ready: {''.join(seen).strip()}")
