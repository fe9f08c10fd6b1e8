"""What breaks stays where it broke: workers that die, clients that leave, swaps under load, restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

HAILMESH = Path(sys.executable).with_name("hailmesh")


def until(condition: Callable[[], Any]) -> Any:
    """Waits for a condition; the suite's own limit ends a wait that is in vain."""
    while not (value := condition()):
        time.sleep(0.01)
    return value


def unit(client: httpx.Client, name: str) -> dict[str, Any]:
    units = client.get("/v1/units").json()["units"]
    return next(entry for entry in units if entry["name"] == name)


def classify(client: httpx.Client, picture: bytes) -> httpx.Response:
    return client.post("/v1/invoke", params={"modalities": "image"}, files={"image": picture})


def chat(client: httpx.Client, **options: Any) -> httpx.Response:
    body = {"model": "llm", "messages": [{"role": "user", "content": "Count to ten."}], **options}
    return client.post("/v1/chat/completions", json=body)


@pytest.fixture
def picture(assets: Path) -> bytes:
    return (assets / "coffee.png").read_bytes()


def test_a_worker_that_dies_is_replaced_and_takes_nobody_with_it(start_node, picture):
    node = start_node("--plug=vision", "--plug=llm")
    with node.client() as client:
        before = unit(client, "llm")
        statuses: list[int] = []
        asking = threading.Thread(target=lambda: statuses.append(chat(client, max_tokens=400).status_code))
        asking.start()
        until(lambda: unit(client, "llm")["inside"] == 1)
        os.kill(before["pid"], signal.SIGKILL)
        assert classify(client, picture).status_code == 200
        asking.join()
        assert statuses == [502]
        after = until(lambda: (entry := unit(client, "llm"))["pid"] not in (None, before["pid"]) and entry)
        assert after["restarts"] == 1
        assert until(lambda: (answer := chat(client, max_tokens=5)).status_code == 200 and answer)


def test_a_client_that_leaves_ends_its_request(node):
    with node.client() as client:
        body = {
            "model": "llm",
            "messages": [{"role": "user", "content": "Tell a long story."}],
            "stream": True,
        }
        with client.stream("POST", "/v1/chat/completions", json={**body, "max_tokens": 1500}) as response:
            lines = response.iter_lines()  # kept: once it is collected, the client closes the stream
            assert next(lines).startswith("data:")
            assert unit(client, "llm")["inside"] == 1
        until(lambda: unit(client, "llm")["inside"] == 0)


def test_a_request_that_cannot_be_done_in_time_is_told_so_and_leaves_nothing(node):
    with node.client() as client:
        leases = client.get("/v1/node").json()["memory"]["arena"]["count"]
        body = {"model": "llm", "messages": [{"role": "user", "content": "Tell a long story."}]}
        answer = client.post(
            "/v1/chat/completions", json={**body, "max_tokens": 1500}, headers={"X-Deadline-Ms": "300"}
        )
        assert answer.status_code in (429, 504), answer.text
        until(lambda: unit(client, "llm")["inside"] == 0)
        until(lambda: client.get("/v1/node").json()["memory"]["arena"]["count"] == leases)
        assert chat(client, max_tokens=5).status_code == 200


def test_a_swap_under_load_loses_no_request(start_node, picture):
    node = start_node("--plug=vision")
    statuses: list[int] = []
    ended = threading.Event()

    def load() -> None:
        with node.client() as client:
            while not ended.is_set():
                statuses.append(classify(client, picture).status_code)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    with node.client() as client:
        first = until(lambda: statuses) and unit(client, "vision")
        for _ in range(3):
            assert client.post("/v1/units", json={"ref": "vision"}, headers=node.admin).status_code in (
                200,
                201,
            )
        seen = len(statuses)
        until(lambda: len(statuses) > seen + 10)
        ended.set()
        for thread in threads:
            thread.join()
        until(lambda: len(client.get("/v1/units").json()["units"]) == 1)
        assert unit(client, "vision")["pid"] != first["pid"]
    assert set(statuses) == {200}


def test_units_come_back_after_the_node_was_killed(start_node, picture):
    node = start_node("--plug=vision")
    with node.client() as client:
        pid = unit(client, "vision")["pid"]
    node.process.kill()
    node.process.wait()
    until(lambda: not Path(f"/proc/{pid}").exists())
    again = start_node(state=node.state)
    with again.client() as client:
        assert unit(client, "vision")["state"] == "active"
        assert classify(client, picture).status_code == 200


def test_two_nodes_do_not_share_a_state_folder(node, hailmesh):
    done = hailmesh("up", "--port", "0", HAILMESH_STATE=str(node.state))
    assert done.returncode == 2
    assert f"another node (process {node.process.pid})" in done.stderr


def test_a_port_in_use_is_said_before_anything_is_loaded(node, hailmesh):
    port = node.url.rpartition(":")[2]
    done = hailmesh("up", "--port", port)
    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port}" in done.stderr


def test_management_needs_the_token(node):
    with node.client() as client:
        assert client.post("/v1/units", json={"ref": "vision"}).status_code in (401, 403)
        assert client.delete("/v1/units/vision").status_code in (401, 403)
        assert unit(client, "vision")["state"] == "active"


def test_a_unit_unplugged_while_its_worker_comes_back_leaves_no_process(start_node, picture):
    node = start_node("--plug=vision")
    with node.client() as client:
        os.kill(unit(client, "vision")["pid"], signal.SIGKILL)
        until(lambda: unit(client, "vision")["restarts"] == 1)
        assert client.delete("/v1/units/vision", params={"drain": 0}, headers=node.admin).status_code == 200
        assert workers_of(node.process.pid) == []
        assert client.post("/v1/units", json={"ref": "vision"}, headers=node.admin).status_code == 201
        assert classify(client, picture).status_code == 200
        assert workers_of(node.process.pid) == [unit(client, "vision")["pid"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_units_load_ends_the_node_cleanly(start_node, number):
    first = start_node("--plug=vision", "--plug=asr")
    assert first.stop() == 0
    process = subprocess.Popen(
        [str(HAILMESH), "up", "--port", "0", "--state", str(first.state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    pids = until(lambda: workers_of(process.pid))
    process.send_signal(number)
    printed, _ = process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in printed
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_unit_that_did_not_come_back_can_be_unplugged(start_node):
    node = start_node("--plug=vision")
    assert node.stop() == 0
    active = node.state / "active.json"
    active.write_text(json.dumps({"units": {"vision": "sha256:" + "0" * 64}}), encoding="utf-8")
    again = start_node(state=node.state)
    with again.client() as client:
        assert client.delete("/v1/units/vision", headers=again.admin).status_code == 200
        assert client.delete("/v1/units/vision", headers=again.admin).status_code == 404
    assert json.loads(active.read_text(encoding="utf-8")) == {"units": {}}


def workers_of(pid: int) -> list[int]:
    """The worker processes of a node."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [
        int(child)
        for child in (children.read_text().split() if children.exists() else ())
        if b"hailmesh.sandboxes.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("name", ["", "admin.token"])
def test_a_state_folder_that_cannot_be_used_is_named_in_one_line(hailmesh, tmp_path, name):
    state = tmp_path / "unusable"
    if name:
        (state / name).mkdir(parents=True)
    else:
        state.write_text("a file in a folder's place", encoding="utf-8")
    done = hailmesh("up", "--port", "0", HAILMESH_STATE=str(state))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"the state folder {state} can't be used" in done.stderr
