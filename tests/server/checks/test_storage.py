"""The storage file: where it can be made, and what is wrong with one that is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_fakes import fill, write_config
from postgres import SKIPPED, new_schema

from foretool.server.checks.storage import check_storage
from foretool.server.commands.group import run
from foretool.server.config.codes import Code
from foretool.storage.opening import open_store
from foretool.storage.places import ServerAddress

FULL = SimpleNamespace(free=4096, total=1 << 30)


def storage(path: Path) -> list[tuple[str, str]]:
    return [(each.severity, each.what.removeprefix(f"{path}: ")) for each in check_storage(path)]


def test_a_file_not_there_yet_is_fine_where_it_can_be_made(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "foretool.sqlite3"
    assert storage(path) == [("ok", "does not exist yet, and can be created")]
    assert storage(Path(sys.executable) / "foretool.sqlite3")[0][0] == "error"


def test_a_full_disk_takes_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "foretool.server.recording.store_watch.disk_usage", lambda folder: SimpleNamespace(free=4096, total=1 << 30)
    )
    ((severity, what),) = storage(tmp_path / "foretool.sqlite3")
    assert severity == "error" and what == f"cannot be created: the disk of {tmp_path} is full"


def test_a_file_on_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(write_config(tmp_path)).close()
    monkeypatch.setattr(
        "foretool.server.recording.store_watch.disk_usage", lambda folder: SimpleNamespace(free=4096, total=1 << 30)
    )
    ((severity, what),) = storage(tmp_path / "foretool.sqlite3")
    assert severity == "error" and what == f"the disk of {tmp_path} is full: nothing more is recorded or learned"


def test_a_sound_file_is_checked(tmp_path: Path) -> None:
    fill(write_config(tmp_path)).close()
    ((severity, what),) = storage(tmp_path / "foretool.sqlite3")
    assert severity == "ok" and what.endswith(", checked")


@pytest.mark.parametrize(("version", "severity"), [(1, "error"), (999, "error")])
def test_a_file_of_another_version_is_told(version: int, severity: str, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "foretool.sqlite3"
    open_store(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    assert storage(path)[0][0] == severity


@pytest.mark.parametrize("place", ["/proc/foretool/foretool.sqlite3", f"{__file__}/foretool.sqlite3"])
def test_a_path_that_cannot_be_made_is_a_problem_for_root_too(place: str) -> None:
    if place.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    found = list(check_storage(Path(place)))
    assert [(each.severity, each.code) for each in found] == [("error", Code.STORAGE_UNUSABLE)]
    assert "cannot be created in" in found[0].what and '"storage"' in found[0].do


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    assert [each.severity for each in check_storage(tmp_path / "deeper" / "foretool.sqlite3")] == ["ok"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_database_is_checked_and_each_problem_says_what_to_do() -> None:
    address = ServerAddress(new_schema() or pytest.skip(SKIPPED))
    ((severity, what),) = [(each.severity, each.what) for each in check_storage(address)]
    assert severity == "ok" and "PostgreSQL " in what and "no tables yet" in what
    open_store(address).close()
    assert "schema " in next(check_storage(address)).what
    away = ServerAddress("postgresql://me:hunter2@127.0.0.1:1/none")
    (found,) = check_storage(away)
    assert (found.severity, found.code) == ("error", Code.STORAGE_UNUSABLE)
    assert "hunter2" not in found.what + found.do and found.do == "check that the server runs and can be reached"


def test_a_missing_driver_is_one_line_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    (found,) = check_storage(ServerAddress("postgresql://me:hunter2@127.0.0.1:1/none"))
    assert "psycopg is not installed" in found.what and "[postgres]" in found.what + found.do


def test_a_full_disk_is_said_by_status_and_by_the_bare_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    monkeypatch.setattr(
        "foretool.server.recording.store_watch.disk_usage", lambda folder: SimpleNamespace(free=4096, total=1 << 30)
    )
    for command in (["status"], []):
        assert run([*command, "--config", str(path)]) == 1
        out = capsys.readouterr().out
        said = f"the disk of {tmp_path} is full: nothing more is recorded or learned; free some space"
        assert said in out and "[FT501]" in out, command
    assert "Next: foretool doctor\n      says why nothing can be stored" in out
    assert run(["status", "--json", "--config", str(path)]) == 1
    assert said in json.loads(capsys.readouterr().out)["disk_full"]


@pytest.mark.parametrize("command", ["status", "misses", "export calls", "tools", "page", "learn"])
@pytest.mark.parametrize("folder", ["/proc/foretool", sys.executable])
def test_no_command_calls_a_place_healthy_that_takes_no_file(
    folder: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if folder.startswith("/proc") and sys.platform != "linux":
        pytest.skip("has no /proc")
    path = write_config(tmp_path, storage=f"{folder}/foretool.sqlite3")
    assert run([*command.split(), "--config", str(path)]) != 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "does not exist yet" not in said and "No misses" not in said and "full" not in said
    assert f"{folder}/foretool.sqlite3" in said
    assert any(why in said for why in ("cannot be created", "No such file", "no folder"))
