"""`foretool doctor` on a screen; what it finds is in test_doctor.py."""

import logging
from pathlib import Path

import pytest
from command_fakes import echo, write_config

from foretool.server.commands.group import run


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"one": echo()})
    before = logging.getLogger("foretool").level
    assert run(["doctor", "--config", str(path)]) == 0
    out, error = capsys.readouterr()
    assert out.endswith("No problems, 0 warnings.\n") and error == ""
    assert logging.getLogger("foretool").level == before


def test_the_way_out_stands_below_its_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"one": echo("--silent")})
    assert run(["doctor", "--timeout", "0.5", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\n  one: no answer to initialize within 0.5 s [FT302]\n    -> give it more time" in out
    assert out.startswith("None of 1 server works: there are no tools")


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_timeout_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--timeout", seconds]) == 2
    assert capsys.readouterr().err.count("\n") == 1
