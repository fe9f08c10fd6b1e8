"""What a node keeps on disk survives, and its token is its owner's alone."""

import json
import stat

import pytest

from hailmesh.hail.errors import DeviceError, MeshError
from hailmesh.mesh.state import ActiveUnits, admin_token, write_atomic


def test_active_units_come_back_in_another_process(tmp_path):
    units = ActiveUnits(tmp_path)
    units.set("llm", "sha256:1")
    units.set("asr", "sha256:2")
    units.set("llm", "sha256:3")
    units.remove("asr")
    assert ActiveUnits(tmp_path).items() == [("llm", "sha256:3")]


def test_a_damaged_file_is_named_with_a_way_out(tmp_path):
    (tmp_path / "active.json").write_text("{")
    with pytest.raises(MeshError, match="plug the units again"):
        ActiveUnits(tmp_path)


def test_the_token_is_made_once_and_readable_by_its_owner_only(tmp_path):
    token = admin_token(tmp_path)
    assert len(token) >= 40
    assert admin_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / "admin.token").stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path):
    path = tmp_path / "file.json"
    write_atomic(path, b'{"a": 1}')
    with pytest.raises(TypeError):
        write_atomic(path, "not bytes")  # type: ignore[arg-type]
    assert json.loads(path.read_bytes()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    ['{"units": {"vision": 1}}', '{"units": {"vision": null}}', '{"units": {"vision": "asr"}}', "[]"],
)
def test_an_entry_that_is_no_digest_is_damage(tmp_path, content):
    (tmp_path / "active.json").write_text(content, encoding="utf-8")
    with pytest.raises(MeshError, match="is damaged"):
        ActiveUnits(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    active = ActiveUnits(tmp_path)
    (tmp_path / "active.json").mkdir()
    with pytest.raises(DeviceError, match=r"can't write .*active\.json"):
        active.set("vision", "sha256:" + "0" * 64)
