"""The main job: a picture, a prompt and a voice through all three layers, over real HTTP."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from hailmesh.mesh.selftest import word_error_rate

STAGES = {"queue", "sandbox", "bridge", "kernel"}
BECKETT = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
QUESTION = "What is the capital of France?"


@pytest.fixture
def files(assets: Path) -> dict[str, tuple[str | None, bytes, str]]:
    """One of each modality."""
    return {
        "image": ("coffee.png", (assets / "coffee.png").read_bytes(), "image/png"),
        "text": (None, QUESTION.encode(), "text/plain"),
        "speech": ("beckett.wav", (assets / "beckett.wav").read_bytes(), "audio/wav"),
    }


def test_the_check_answers_all_three_rightly_and_exits_0(hailmesh):
    done = hailmesh("up", "--check", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is True
    answers = {request["unit"]: request for request in report["requests"]}
    assert answers["vision"]["answer"][0]["label"] == "espresso"
    assert "Paris" in answers["llm"]["answer"]
    assert word_error_rate(BECKETT, answers["asr"]["answer"]) == 0.0
    for request in answers.values():
        assert set(request["stages_ms"]) == STAGES
        assert request["stages_ms"]["kernel"] > 0
        assert sum(request["stages_ms"].values()) <= request["total_ms"]


def test_the_check_fails_when_an_answer_is_wrong(hailmesh, tmp_path: Path, assets: Path):
    folder = tmp_path / "wrong"
    folder.mkdir()
    built = assets.parent / "units" / "vision"
    for file in built.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "unit.toml").unlink()
    (folder / "unit.toml").write_text((built / "unit.toml").read_text().replace("espresso", "teapot"))
    own_store = {"HAILMESH_STATE": str(tmp_path / "own")}
    for unit in ("llm", "asr"):
        assert hailmesh("oci", "build", str(built.parent / unit), **own_store).returncode == 0
    assert hailmesh("oci", "build", str(folder), **own_store).returncode == 0
    done = hailmesh("up", "--check", "--json", **own_store)
    assert done.returncode == 1
    wrong = {request["unit"]: request for request in json.loads(done.stdout)["requests"]}["vision"]
    assert wrong["passed"] is False
    assert "expected 'teapot', found 'espresso'" in wrong["reason"]


def test_one_call_answers_three_modalities_at_once(node, files):
    with node.client() as client:
        answer = client.post("/v1/invoke", params={"modalities": "image,text,speech"}, files=files)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert results["image"]["labels"][0]["label"] == "espresso"
    assert results["image"]["labels"][0]["score"] == pytest.approx(0.95, abs=0.05)
    assert "Paris" in results["text"]["text"]
    assert word_error_rate(BECKETT, results["speech"]["text"]) == 0.0
    for result, unit in zip(results.values(), ("vision", "llm", "asr"), strict=True):
        assert result["unit"] == unit
        assert STAGES | {"total"} <= set(result["timings"])


def test_the_modalities_of_one_call_run_at_the_same_time(node, files):
    """All three are inside their units at one moment, as the node itself sees it."""
    with node.client() as client, ThreadPoolExecutor(1) as pool:
        params = {"modalities": "image,text,speech"}
        pending = pool.submit(httpx.post, f"{node.url}/v1/invoke", params=params, files=files, timeout=120)
        together = False
        while not pending.done():
            inside = {unit["name"]: unit["inside"] for unit in client.get("/v1/units").json()["units"]}
            together = together or (inside["llm"] > 0 and inside["asr"] > 0)
            time.sleep(0.001)
        assert pending.result().status_code == 200
    assert together


def test_a_failing_modality_does_not_take_the_others_with_it(node, files):
    files["image"] = ("broken.png", b"\x89PNG\r\n\x1a\n", "image/png")
    del files["speech"]
    with node.client() as client:
        answer = client.post("/v1/invoke", params={"modalities": "image,text"}, files=files)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert results["image"]["status"] == 400
    assert "Paris" in results["text"]["text"]
