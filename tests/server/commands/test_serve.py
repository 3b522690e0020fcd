"""`foretool serve` where click reads the command line: the same errors, the same statuses."""

from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_an_unknown_profile_is_refused_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {})
    assert run(["serve", "--profile", "play", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"foretool: {path}: no profile 'play'; it has: none [FT112]\n"
