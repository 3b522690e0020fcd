"""How a command says that something is wrong."""

import pytest

from foretool.server.commands.exit import USAGE, WRONG, complain


def test_a_complaint_is_one_line_on_stderr_and_gives_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert (complain("a message\n  of two lines"), complain("wrong", WRONG)) == (USAGE, WRONG)
    assert capsys.readouterr() == ("", "foretool: a message of two lines\nforetool: wrong\n")
