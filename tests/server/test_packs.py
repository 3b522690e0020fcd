"""What the core does with a pack and without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from recorded_tasks import START, write_recorded
from stored_records import MISS

from foretool.server import packs
from foretool.server.commands.group import COMMANDS, run
from foretool.server.config import loader
from foretool.storage.opening import open_store


def test_every_part_that_the_core_names_is_there() -> None:
    assert all(
        callable(packs.load(name))
        for name in (
            packs.MAKE_PAGE,
            packs.MEASURE_FIXES,
            packs.WATCH,
            packs.PEOPLE,
            packs.SHARE_SESSIONS,
            packs.GRANTS,
            packs.PRINCIPAL_OF,
        )
    )
    assert packs.COMMANDS_OF_PACKS.keys() <= COMMANDS.keys()


def test_without_the_desk_a_miss_has_its_changes_and_no_effect_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recorded(tmp_path, [("phase of the moon", ["sky__moon"])] * 6, list_tokens=320)
    with open_store(loader.load(path).storage) as store:
        store.calls.record(
            [], [replace(MISS, session="s0", tool="sky__moon", noticed="call", cause="budget", call=0, at=START + 3)]
        )
    monkeypatch.setitem(sys.modules, "foretool.desk", None)
    assert packs.load(packs.MAKE_PAGE) is None
    assert run(["misses", "1", "--fix", "--change", "pin", "--dry-run", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "pin: pin sky__moon" in out and "per task" not in out
