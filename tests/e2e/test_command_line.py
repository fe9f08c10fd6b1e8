"""The command line against a real node, and over the store alone."""

from __future__ import annotations

import json
from pathlib import Path


def test_ps_shows_the_units(node):
    shown = node.run("ps")
    assert shown.returncode == 0, shown.stderr
    for name in ("vision", "llm", "asr"):
        assert name in shown.stdout
    units = json.loads(node.run("ps", "--json").stdout)
    assert {unit["name"]: unit["state"] for unit in units} == {
        "vision": "active",
        "llm": "active",
        "asr": "active",
    }


def test_invoke_asks_in_two_modalities(node, assets: Path):
    done = node.run("invoke", "--image", str(assets / "chelsea.png"), "--text", "Name a river.", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert "cat" in results["image"]["labels"][0]["label"].lower()
    assert results["text"]["text"]


def test_invoke_without_input_is_a_usage_error(node):
    done = node.run("invoke")
    assert done.returncode == 2
    assert "--image FILE" in done.stderr


def test_chat_answers_one_question(node):
    done = node.run("chat", "What is the capital of France?")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_chat_holds_a_conversation(node):
    done = node.run("chat", stdin="What is the capital of France?\nThank you.\n")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_transcribe_writes_down_what_is_said(node, assets: Path):
    done = node.run("transcribe", str(assets / "beckett.wav"))
    assert done.returncode == 0, done.stderr
    assert "fail better" in done.stdout.lower()


def test_transcribe_names_a_file_that_is_missing(node):
    done = node.run("transcribe", "absent.wav")
    assert done.returncode == 2
    assert "absent.wav" in done.stderr


def test_plug_and_unplug_take_effect_and_last(start_node):
    node = start_node()
    assert json.loads(node.run("ps", "--json").stdout) == []
    assert node.run("plug", "vision").returncode == 0
    assert [unit["name"] for unit in json.loads(node.run("ps", "--json").stdout)] == ["vision"]
    assert node.run("unplug", "vision").returncode == 0
    assert json.loads(node.run("ps", "--json").stdout) == []
    missing = node.run("plug", "nobody")
    assert missing.returncode == 1
    assert "nobody" in missing.stderr and "vision" in missing.stderr


def test_logs_of_an_unknown_unit_are_not_found(node):
    assert node.run("logs", "vision").returncode == 0
    done = node.run("logs", "nobody")
    assert done.returncode == 1
    assert "nobody" in done.stderr


def test_doctor_finds_this_machine_healthy(hailmesh):
    done = hailmesh("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["healthy"] is True
    checks = {finding["check"] for finding in report["findings"]}
    assert {"platform", "graph executor", "device", "memory", "image store"} <= checks


def test_doctor_says_what_keeps_the_node_from_serving(hailmesh):
    done = hailmesh("doctor", "--json", HAILMESH_ARENA="1000GiB")
    assert done.returncode == 1
    failed = [f for f in json.loads(done.stdout)["findings"] if f["status"] == "failed"]
    assert [finding["check"] for finding in failed] == ["memory"]
    assert "smaller arena" in failed[0]["advice"]


def test_images_are_listed_and_inspected(hailmesh):
    listed = json.loads(hailmesh("oci", "ls", "--json").stdout)
    vision = next(image for image in listed if image["reference"] == "vision:latest")
    shown = json.loads(hailmesh("oci", "inspect", "vision").stdout)
    assert shown["digest"] == vision["digest"]
    assert shown["annotations"]["org.hailmesh.unit.name"] == "vision"
    assert "Apache-2.0" in shown["annotations"]["org.opencontainers.image.licenses"]
    assert hailmesh("oci", "inspect", "nobody").returncode == 1


def test_no_node_is_said_with_a_way_out(hailmesh):
    done = hailmesh("ps", HAILMESH_URL="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "hailmesh up" in done.stderr
