"""How a command says that something is wrong."""

import pytest

from foretool.server.commands.exit import USAGE, WRONG, complain


def test_a_complaint_is_one_line_on_stderr_and_gives_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert (complain("a message\n  of two lines"), complain("wrong", WRONG)) == (USAGE, WRONG)
    assert capsys.readouterr() == ("", "foretool: a message of two lines\nforetool: wrong\n")


def test_on_a_terminal_no_word_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    complain("/home/ann/.config/foretool/mcp.json: expected a well-known key, found another one")
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40 and "well-known" in " ".join(lines) and len(lines) > 2
