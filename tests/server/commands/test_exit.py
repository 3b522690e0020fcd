"""How a command says that something is wrong."""

from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.exit import USAGE, WRONG, complain
from foretool.server.commands.group import run


def test_a_complaint_is_one_line_on_stderr_and_gives_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert (complain("a message\n  of two lines"), complain("wrong", WRONG)) == (USAGE, WRONG)
    assert capsys.readouterr() == ("", "foretool: a message of two lines\nforetool: wrong\n")


def test_on_a_terminal_no_word_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    complain("/home/ann/.config/foretool/mcp.json: expected a well-known key, found another one")
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40 and "well-known" in " ".join(lines) and len(lines) > 2


@pytest.mark.parametrize(
    "line",
    [
        "doctor nosuch", "doctor --client nosuch", "doctor --explain FT999", "remove nosuch", "enable nosuch",
        "disable nosuch", "init --client nosuch --dry-run", "connect nosuch", "review nosuch", "login nosuch",
        "logout nosuch", "pin nosuch", "pin --remove nosuch", "misses 9999", "misses --server nosuch",
        "misses --client nosuch", "tools nosuch", "tools --server nosuch", "tools --schema nosuch",
        "search --tool nosuch task", "forget --server nosuch --dry-run", "forget --tool nosuch --dry-run",
        "forget --session nosuch --dry-run", "enrich --server nosuch --dry-run",
    ],
)  # fmt: skip
def test_what_is_named_and_does_not_exist_is_status_1(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write_config(tmp_path)
    fill(path).close()
    assert run([*line.split(), "--config", str(path)]) == WRONG
    err = capsys.readouterr().err
    assert line.split()[-1] in err or "nosuch" in err


@pytest.mark.parametrize(
    "line", ["misses --since 1min", "misses --server sky --since 1min", "forget --server sky --dry-run"]
)
def test_a_filter_that_nothing_fits_is_no_fault(line: str, tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    assert run([*line.split(), "--config", str(path)]) == 0
