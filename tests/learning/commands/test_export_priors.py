"""`foretool learn --export`: a new file that only its owner can read, or one line that says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.retrieval.portable_priors import decode_priors
from foretool.server.commands.group import run


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    path = write_config(tmp_path)
    fill(path).close()
    return ["--config", str(path)]


def test_a_file_is_written_for_its_owner_and_never_over_another_one(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "team.json"
    assert run(["learn", "--export", str(file), *config]) == 0
    assert "1 tool of 1 server and 0 pairs of tools, counted in 1 task." in capsys.readouterr().out
    assert [each.name for each in decode_priors(file.read_bytes()).tools] == ["forecast"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(["learn", "--export", str(file), *config]) == 2
    assert capsys.readouterr().err.endswith(f"{file} exists; name another file, or remove it first\n")
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    assert run(["learn", "--export", str(link), *config]) == 2
    assert not (tmp_path / "elsewhere.json").exists()
    capsys.readouterr()
    assert run(["learn", "--export", str(tmp_path / "json.json"), "--json", *config]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tools"], told["followed"], told["tasks"], told["people"]) == (1, 0, 1, 1)


def test_a_store_without_calls_and_a_folder_that_is_not_there_are_said_in_one_line(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["learn", "--export", str(tmp_path / "none" / "a.json"), *config]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    assert run(["learn", "--export", str(other / "a.json"), "--config", str(write_config(other))]) == 1
    error = capsys.readouterr().err
    assert "no calls of tools are on record" in error and error.count("\n") == 1
    assert not (other / "a.json").exists()
