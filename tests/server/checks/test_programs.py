"""What this machine has: encoders, and the programs of the servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.checks.programs import check_programs
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.setup.installation import Installation, Method
from foretool.storage.places import made_folder


def wrong(folder: Path, servers: dict[str, object], **settings: object) -> list[tuple[Code | None, str, str]]:
    config = loader.load(write_config(folder, servers, **settings))
    return [(each.code, each.what, each.do) for each in check_programs(config) if each.severity != "ok"]


def test_an_encoder_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    ((code, what, do),) = wrong(tmp_path, {}, encoder="nonsense")
    assert code is Code.ENCODER_WRONG and what.startswith("encoder 'nonsense': expected \"auto\"")
    assert do.startswith('write "auto" or delete the setting')
    assert wrong(tmp_path, {}, encoder="none") == []


def test_an_encoder_that_is_not_installed_comes_with_a_command_that_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Installation("uv tool", tmp_path, "", ())
    monkeypatch.setattr("foretool.server.setup.installation.this_installation", lambda: copy)
    monkeypatch.setattr("foretool.retrieval.encoders.weights.locate", lambda weights: None)
    ((code, _, do),) = wrong(tmp_path, {}, encoder="bge-small")
    assert (code, do) == (Code.ENCODER_WRONG, "uv tool install 'foretool[models]'")


@pytest.mark.parametrize(("setting", "extra"), [({"telemetry": "on"}, "otel"), ({"metrics": True}, "metrics")], ids=str)
def test_telemetry_without_its_packages_is_a_warning(
    setting: dict[str, object], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong(tmp_path, {}, encoder="none", **setting) == []
    monkeypatch.setattr("foretool.server.checks.programs.find_spec", lambda module: None)
    ((code, what, do),) = wrong(tmp_path, {}, encoder="none", **setting)
    assert code is Code.TELEMETRY_MISSING and what.startswith(f"foretool.{next(iter(setting))} is on")
    assert f"[{extra}]" in do


def test_an_old_node_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text("#!/bin/sh\necho v16.20.2\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(node.parent))
    ((code, what, do),) = wrong(tmp_path, {"one": {"command": "node"}})
    assert (code, what) == (Code.NODE_OLD, "node is v16.20.2") and "18 or newer" in do


def test_the_room_on_the_disk_is_said_where_foretool_has_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "library").write_bytes(bytes(3 << 20))
    config = loader.load(write_config(tmp_path, {}, encoder="none"))
    folder = made_folder(config.storage)
    assert folder is not None
    folder.mkdir(parents=True)
    (folder / "o200k_base.ranks").write_bytes(bytes(2 << 20))

    def said(method: Method) -> list[str]:
        copy = Installation(method, tmp_path / "tool", "", ())
        monkeypatch.setattr("foretool.server.checks.programs.this_installation", lambda: copy)
        return [each.what for each in check_programs(config) if each.what.startswith("on the disk")]

    assert said("uv tool") == [f"on the disk: 3 MiB in {tmp_path}/tool; 2 MiB in {folder}, which uninstall deletes"]
    assert said("checkout") == [], "others use that environment too"
