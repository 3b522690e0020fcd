"""What the core does with a pack and without it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config
from msgspec.structs import replace
from recorded_tasks import START, write_recorded
from stored_records import MISS

from foretool.server import packs
from foretool.server.commands.group import COMMANDS, run
from foretool.server.config import loader
from foretool.server.serve import Watcher, watching
from foretool.storage.opening import open_store


def test_every_part_that_the_core_names_is_there() -> None:
    assert all(
        callable(packs.load_part(name))
        for name in (
            packs.SHOW_STATS,
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


ACCESS = {"issuer": "https://login.example.com", "resource": "https://tools.example.com/mcp",
          "grants": [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words", "status", "said"),
    [
        ({}, ["learn"], 2, "learn: this installation lacks the part foretool.learning"),
        ({}, ["status", "--stats"], 2, "status --stats: this installation lacks the part foretool.desk"),
        ({}, ["misses", "--confused"], 2, "misses --confused: this installation lacks the part foretool.desk"),
        ({}, ["tools", "--needs"], 2, "tools --needs: this installation lacks the part foretool.desk"),
        ({}, ["export", "calls"], 2, "export: this installation lacks the part foretool.desk"),
        ({}, ["page"], 2, "page: this installation lacks the part foretool.desk"),
        ({"access": ACCESS}, ["serve", "--http"], 2, "access, per_user: this installation lacks the part"),
        ({"storage": "postgresql://x@127.0.0.1:1/y"}, ["status"], 1, "this installation lacks the part foretool.fleet"),
    ],
)  # fmt: skip
def test_what_a_missing_pack_would_do_is_said_in_one_line(
    settings: dict[str, Any], words: list[str], status: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for pack in ("desk", "fleet", "learning"):
        monkeypatch.setitem(sys.modules, f"foretool.{pack}", None)
    config = write_config(tmp_path, {"calc": {"command": "calc"}}, **{"insecure_loopback": True, **settings})
    ended = run([*words, "--config", str(config)])
    shown = "".join(capfd.readouterr())
    assert (ended, said in shown) == (status, True), shown


def test_a_proxy_that_nothing_can_watch_says_so_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "foretool.fleet", None)
    config = loader.load(write_config(tmp_path, {"calc": {"command": "calc"}}, metrics=True))
    with watching(config, http=True) as watch:
        assert isinstance(watch, Watcher)
    assert "telemetry, metrics: this installation lacks the part foretool.fleet" in caplog.text


def test_without_the_desk_a_miss_has_its_changes_and_no_effect_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recorded(tmp_path, [("phase of the moon", ["sky__moon"])] * 6, list_tokens=320)
    with open_store(loader.load(path).storage) as store:
        store.calls.record(
            [], [replace(MISS, session="s0", tool="sky__moon", noticed="call", cause="budget", call=0, at=START + 3)]
        )
    monkeypatch.setitem(sys.modules, "foretool.desk", None)
    assert packs.load_part(packs.MAKE_PAGE) is None
    assert run(["misses", "1", "--fix", "--change", "pin", "--dry-run", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "pin: pin sky__moon" in out and "per task" not in out
