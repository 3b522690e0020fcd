"""`foretool service`: the file is shown, written and taken back; nothing is started here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import write_config
from requirements import requirement

from foretool.server.commands import service as services
from foretool.server.commands.group import run


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SERVICE_TEST_TOKEN", "s3cret-word")
    return write_config(
        tmp_path, {"a": {"command": "a", "env": {"T": "${SERVICE_TEST_TOKEN}"}}}, insecure_loopback=True
    )


def unit(home: Path) -> Path:
    return home / ".config/systemd/user/foretool.service"


def service(path: Path, *words: str) -> int:
    return run(["service", *words, "--config", str(path)])


@requirement("setup:service")
def test_it_is_shown_written_and_taken_back(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert service(path, "install", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "ExecStart=" in out and "systemctl --user enable --now foretool.service" in out and "Nothing was run." in out
    assert "SERVICE_TEST_TOKEN" in out and "s3cret-word" not in out and not unit(tmp_path).exists()
    assert service(path, "install", "--yes", "--no-start") == 0
    assert str(path) in unit(tmp_path).read_text() and unit(tmp_path).stat().st_mode & 0o077 == 0
    assert service(path, "install", "--yes", "--no-start") == 0
    assert "is there already and says the same" in capsys.readouterr().out
    assert service(path, "uninstall", "--yes", "--no-stop") == 0
    assert not unit(tmp_path).exists() and "foretool.service is gone." in capsys.readouterr().out
    assert service(path, "uninstall", "--yes", "--no-stop") == 0
    assert "There is no service" in capsys.readouterr().out


@requirement("setup:service")
def test_a_file_of_somebody_else_comes_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    unit(tmp_path).parent.mkdir(parents=True)
    unit(tmp_path).write_text("# mine\n")
    assert service(path, "install", "--yes", "--no-start") == 0
    unit(tmp_path).write_bytes(unit(tmp_path).read_bytes())
    assert service(path, "uninstall", "--yes", "--no-stop") == 0
    assert unit(tmp_path).read_text() == "# mine\n"


def test_a_file_that_install_did_not_write_is_left_alone(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit(tmp_path).parent.mkdir(parents=True)
    unit(tmp_path).write_text("# mine\n")
    assert service(path, "uninstall", "--yes", "--no-stop") == 1
    assert "was not written by foretool service install" in capsys.readouterr().err
    assert unit(tmp_path).read_text() == "# mine\n"


def test_a_service_that_could_not_start_is_not_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"a": {"command": "a"}})
    assert service(path, "install", "--yes") == 1
    assert "no token is set" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "said"), [(True, "It runs."), (False, "It does not run."), (None, "is not known")])
def test_status_says_whether_it_runs(
    answer: bool | None, said: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(services, "_is_running", lambda _: answer)
    assert service(path, "status") == 1
    assert "There is no service" in capsys.readouterr().out
    service(path, "install", "--yes", "--no-start")
    capsys.readouterr()
    assert service(path, "status") == int(answer is False)
    assert said in capsys.readouterr().out
    service(path, "status", "--json")
    assert json.loads(capsys.readouterr().out)["state"] == "current"


def test_the_path_of_another_shell_is_no_difference_but_a_program_that_only_this_one_finds_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    service(path, "install", "--yes", "--no-start")
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    capsys.readouterr()
    service(path, "status", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["not_on_path"]) == ("current", [])
    (programs / "a").write_text("#!/bin/sh\n")
    (programs / "a").chmod(0o755)
    service(path, "status")
    assert "This shell finds a, and the service does not" in capsys.readouterr().out
    assert service(path, "install", "--yes", "--no-start") == 0
    assert "gets the PATH of this shell" in capsys.readouterr().out
    assert f"PATH={programs}:" in unit(tmp_path).read_text()
    service(path, "status", "--json")
    assert json.loads(capsys.readouterr().out)["not_on_path"] == []
    unit(tmp_path).write_text(unit(tmp_path).read_text().replace("RestartSec=2", "RestartSec=3"))
    service(path, "status", "--json")
    assert json.loads(capsys.readouterr().out)["state"] == "different"


def test_a_config_that_cannot_be_read_does_not_keep_status_from_answering(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service(path, "install", "--yes", "--no-start")
    path.write_text("{")
    capsys.readouterr()
    service(path, "status", "--json")
    assert json.loads(capsys.readouterr().out)["state"] == "current"
