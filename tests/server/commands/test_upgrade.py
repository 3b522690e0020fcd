"""`foretool upgrade` shows the commands, and runs them only after a yes."""

from __future__ import annotations

import json
import sys

import pytest

from foretool import __version__
from foretool.server.commands import upgrade
from foretool.server.commands.group import run


def test_nothing_is_run_without_a_yes(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["upgrade"]) == 0
    out = capfd.readouterr().out
    assert f"foretool {__version__}, " in out and "Nothing was run: there is nobody to ask" in out
    assert run(["upgrade", "--dry-run", "--yes"]) == 0
    assert run(["upgrade", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.partition("Nothing was run.\n")[2])["upgrade"]


def test_commands_run_in_order_and_stop_at_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    def says(word: str, status: int = 0) -> tuple[str, ...]:
        return (sys.executable, "-c", f"print({word!r}.upper()); raise SystemExit({status})")

    assert upgrade.run_commands([says("one"), says("two")], "?", agreed=True, dry_run=False) == 0
    out = capfd.readouterr().out
    assert out.index("ONE") < out.index("TWO")
    assert upgrade.run_commands([says("bad", 3), says("two")], "?", agreed=True, dry_run=False) == 1
    out, error = capfd.readouterr()
    assert "TWO" not in out and "ended with status 3" in error
    assert upgrade.run_commands([("/no/such/program",)], "?", agreed=True, dry_run=False) == 1
    assert "cannot be started" in capfd.readouterr().err
