"""A real node: its own process, real images, real HTTP on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
HAILMESH = Path(sys.executable).with_name("hailmesh")
REFERENCE_UNITS = ("vision", "llm", "asr")


@dataclass
class RunningNode:
    """`url` of the node's HTTP, `state` its folder, `lines` what it printed so far."""

    process: subprocess.Popen[str]
    state: Path
    url: str = ""
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, **options)  # type: ignore[arg-type]

    @property
    def token(self) -> str:
        return (self.state / "admin.token").read_text(encoding="utf-8").strip()

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HAILMESH_STATE": str(self.state), "HAILMESH_URL": self.url}

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command line, against this node."""
        return subprocess.run(
            [str(HAILMESH), *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            input=stdin,
            check=False,
        )

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        status = self.process.wait()
        if self.reader is not None:
            self.reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


def fresh_state(folder: Path) -> Path:
    """A state folder of its own over the built images and their native code."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("store", "artifacts"):
        (BUILD / "node" / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(BUILD / "node" / name)
    return folder


def start(state: Path, *arguments: str, **environment: str) -> RunningNode:
    """Starts a node on a free port and waits until it says that it is ready."""
    process = subprocess.Popen(
        [str(HAILMESH), "up", "--port", "0", "--state", str(state), *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    node = RunningNode(process, state)
    assert process.stdout is not None
    for line in process.stdout:
        node.lines.append(line)
        found = re.search(r"ready on (http://\S+)", line)
        if found:
            node.url = found[1]
            break
    else:
        status = node.stop()
        raise AssertionError(f"the node ended with {status}: {''.join(node.lines)}")
    node.reader = threading.Thread(target=lambda: node.lines.extend(process.stdout or ()))
    node.reader.start()
    return node


@pytest.fixture(scope="session")
def images() -> Path:
    """The built reference images; they are made by `make images`, not by a test."""
    store = BUILD / "node" / "store"
    if not (store / "index.json").exists():
        pytest.fail("the reference images aren't built: run 'make images' first")
    return store


@pytest.fixture(scope="session")
def node(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node with the three reference units, shared by the tests that leave it as they found it."""
    running = start(
        fresh_state(tmp_path_factory.mktemp("node")), *(f"--plug={unit}" for unit in REFERENCE_UNITS)
    )
    yield running
    assert running.stop() == 0


@pytest.fixture
def start_node(images: Path, tmp_path: Path) -> Iterator[Callable[..., RunningNode]]:
    """Starts nodes of a test's own; they are stopped at its end."""
    running: list[RunningNode] = []

    def begin(*arguments: str, state: Path | None = None, **environment: str) -> RunningNode:
        fresh = state or fresh_state(tmp_path / f"node{len(running)}")
        running.append(start(fresh, *arguments, **environment))
        return running[-1]

    yield begin
    for entry in running:
        entry.stop()


@pytest.fixture(scope="session")
def assets() -> Path:
    """Pictures and recordings that `make images` unpacked."""
    return BUILD / "assets"


@pytest.fixture
def hailmesh(images: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line over a state folder of the test's own, without a node."""
    state = fresh_state(tmp_path / "state")

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(HAILMESH), *arguments],
            env={**os.environ, "HAILMESH_STATE": str(state), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
