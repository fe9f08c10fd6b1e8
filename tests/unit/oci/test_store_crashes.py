"""A store that is killed between any two system calls, or used by several processes, stays whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hailmesh.oci.index import Index
from hailmesh.oci.store import Store

DIE_AT_STEP = """
import os, sys
from pathlib import Path
from hailmesh.oci import files
from hailmesh.oci.index import Index
from hailmesh.oci.store import Store

root, steps = Path(sys.argv[1]), int(sys.argv[2])

def counted(real):
    def step(*args, **kwargs):
        global steps
        if steps == 0:
            os._exit(9)
        steps -= 1
        return real(*args, **kwargs)
    return step

os.fsync, os.fchmod = counted(os.fsync), counted(os.fchmod)
Path.replace = counted(Path.replace)
store = Store(root)
with store.writing():
    blob = store.put(b"new weights", "a/b")
    image = store.put_manifest(Index((), {"weights": blob.digest}))
    store.tag("eyes", image)
"""

BUSY = """
import sys
from pathlib import Path
from hailmesh.oci.build import build
from hailmesh.oci.store import Store

toml, root, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
module = toml.parent / "guest.wasm"
for round in range(rounds):
    module.write_bytes(b"\\0asm\\x01\\0\\0\\0" + bytes([round]))
    build(toml, Store(root), guests=lambda name: module)
"""

SWEEP = """
import sys
from pathlib import Path
from hailmesh.oci.store import Store

for _ in range(int(sys.argv[2])):
    Store(Path(sys.argv[1])).gc()
"""


def run(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)])


def test_a_store_killed_at_any_step_holds_the_old_image_or_the_new_one_whole(tmp_path: Path) -> None:
    outcomes = set()
    for step in range(40):
        root = tmp_path / str(step)
        store = Store(root)
        old = store.put_manifest(Index((), {"weights": "old"}))
        store.tag("eyes", old)
        code = run(DIE_AT_STEP, root, step).wait()
        again = Store(root)
        found = again.resolve("eyes")
        list(again.walk(found))
        outcomes.add(found.digest == old.digest)
        again.gc()
        assert list((root / ".tmp").iterdir()) == [], "gc takes what was left half-written"
        again.tag("eyes:next", again.put_manifest(Index((), {"weights": "next"})))
        if code == 0:
            assert found.digest != old.digest
            break
        assert code == 9
    else:
        pytest.fail("the script never ran to its end")
    assert step >= 9, "three files, three steps each, were interrupted"
    assert outcomes == {True, False}


def test_several_processes_build_and_sweep_one_store_at_once(unit_folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "shared")
    folders = []
    for name in ("ears", "nose"):
        folder = tmp_path / f"{name}-unit"
        shutil.copytree(unit_folder, folder)
        toml = folder / "unit.toml"
        toml.write_text(toml.read_text().replace('name = "ears"', f'name = "{name}"'))
        folders.append(folder)
    children = [run(BUSY, folder / "unit.toml", store.root, 12) for folder in folders]
    children.append(run(SWEEP, store.root, 12))
    assert [child.wait() for child in children] == [0, 0, 0]
    listed = [entry.reference for entry in store.ls() if entry.reference]
    assert listed == ["ears:1.2.3", "ears:latest", "nose:1.2.3", "nose:latest"]
    for name in ("ears", "nose"):
        for blob in store.walk(store.resolve(name)):
            os.close(store.open_verified(blob))
