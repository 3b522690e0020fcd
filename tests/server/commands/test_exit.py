"""How a command says that something is wrong."""

from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.exit import WRONG
from foretool.server.commands.group import run


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
