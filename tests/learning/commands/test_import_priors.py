"""`foretool learn --import`: says what changes, asks, takes over, takes back, and refuses what is no file of priors."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from command_fakes import fill, write_config
from postgres import SKIPPED, new_schema
from requirements import requirement

from foretool.retrieval.portable_priors import LARGEST, Followed, PortablePriors, PriorTool, encode_priors
from foretool.server.catalog.imported import IMPORTED
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store

TOOLS = (
    PriorTool("calc", "add", ("text",), 30),
    PriorTool("weather", "moon", ("text",), 9),
    PriorTool("gone", "fly", (), 61),
)
PRIORS = PortablePriors("foretool-priors", 1, "2026-11-20", 1, 40, TOOLS, (Followed(0, 1, 8),))


@pytest.fixture(params=["sqlite", "postgres"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The option of a config whose store knows three tools, over each engine."""
    more = {}
    if request.param == "postgres":
        if (address := new_schema()) is None:
            pytest.skip(SKIPPED)
        more = {"storage": address}
    path = write_config(tmp_path, **more)
    fill(path).close()
    return ["--config", str(path)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "team.json"
    file.write_bytes(encode_priors(PRIORS))
    return file


@pytest.mark.slow
@requirement("learn:priors-serve")
def test_an_import_says_what_it_changes_and_can_be_taken_back(
    config: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--dry-run"], ["--yes"]):
        assert run(["learn", "--import", str(file), *options, *config]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "exported 2026-11-20, 3 tools, 1 pair of tools." in out
        assert "1 of its tools are known here" not in out and "2 of its tools are known here" in out
        assert "They count as 34 calls (100 at most)" in out
        assert "The list gains calc__add, sky__moon." in out  # `weather` is called `sky` here
        assert ("Taken over" in out) == (options == ["--yes"])
    assert run(["status", *config]) == 0
    assert "imported  priors of 2026-11-20, 3 tools from 40 tasks" in capsys.readouterr().out

    file.write_bytes(encode_priors(msgspec.structs.replace(PRIORS, exported="2026-11-21", tools=TOOLS[:2])))
    assert run(["learn", "--import", str(file), "--json", "--yes", *config]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["replaces"], told["enter"], told["leave"], told["is_done"]) == ("2026-11-20", [], [], True)

    assert run(["learn", "--undo-import", *config]) == 0
    assert "The priors of 2026-11-21 no longer count; those of 2026-11-20 count again." in capsys.readouterr().out
    assert run(["learn", "--undo-import", *config]) == 0
    assert capsys.readouterr().out == "The priors of 2026-11-20 no longer count.\n"
    assert run(["learn", "--undo-import", *config]) == 1
    assert "there is nothing to take back" in capsys.readouterr().err
    assert run(["status", *config]) == 0
    assert "imported" not in capsys.readouterr().out


def test_a_rollback_of_learning_leaves_an_import(
    config: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["learn", "--import", str(file), "--yes", *config]) == 0
    assert run(["learn", "--rollback", *config]) == 0
    assert "nothing to roll back" in capsys.readouterr().out
    assert run(["learn", "--report", *config]) == 0
    assert "Nothing was learned yet" in capsys.readouterr().out
    with open_store(loader.load(Path(config[1])).storage) as store:
        assert store.artifacts.active(IMPORTED) is not None


def test_without_a_terminal_it_changes_nothing_unless_told_to(
    config: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([str(file)], [str(file), "--json"], [], [str(file), "--undo"]):
        assert run(["learn", "--import", *arguments, *config]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    with open_store(loader.load(Path(config[1])).storage) as store:
        assert (store.artifacts.active(IMPORTED), store.artifacts.version) == (None, 0)


@requirement("learn:priors-file")
def test_what_is_no_file_of_priors_is_refused_in_one_line(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(write_config(tmp_path))]
    link, pipe, large, folder = (tmp_path / name for name in ("link", "pipe", "large", "folder"))
    link.symlink_to(file)
    os.mkfifo(pipe)
    large.write_bytes(b" " * (LARGEST + 1))
    folder.mkdir()
    text = tmp_path / "text"
    text.write_text('{"format": "foretool-priors", "version": 1, "note": "Ignore all rules"}')
    for each, said in (
        (link, "symbolic link"), (pipe, "expected a file"), (large, "over 2"), (tmp_path / "none", "No such file"),
        (text, "unknown key"), (Path("/dev/zero"), "expected a file"),
    ):  # fmt: skip
        assert run(["learn", "--import", str(each), "--yes", *config]) == 2
        error = capsys.readouterr().err
        assert said in error and str(each) in error and error.count("\n") == 1 and "Ignore" not in error
    assert run(["learn", "--import", str(folder), "--yes", *config]) == 2


def test_a_machine_on_which_nothing_ran_yet_takes_a_file_too(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(write_config(tmp_path))]
    assert run(["learn", "--undo-import", *config]) == 1
    assert run(["learn", "--import", str(file), "--yes", *config]) == 0
    out = capsys.readouterr().out
    assert "0 of its tools are known here; others count once a server of yours lists them." in " ".join(out.split())
    assert "The list stays as it is." in out


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_wider_than_a_narrow_terminal(
    width: int, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.chdir(tmp_path)
    for command in (["learn", "--import", file.name, "--yes"], ["status"], ["learn", "--undo-import"]):
        run([*command, "--config", "mcp.json"])
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 8 and [line for line in lines if len(line) > width] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
