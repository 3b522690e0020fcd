"""The made-up ledger holds what was asked for, and its listings can be timed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.storage import at_size
from bench.storage.ledger import copy_sessions, write_ledger
from foretool.server.config.loader import load
from foretool.storage.opening import open_store


def test_the_ledger_holds_as_many_calls_as_asked_for_and_each_copy_as_many_again(tmp_path: Path) -> None:
    config = load(write_ledger(tmp_path, 500, 25, 20.0, time.time()))
    copy_sessions(config.storage, 3)
    with open_store(config.storage) as store:
        held = store.statistics()
        assert (held.calls, held.sessions, held.tools) == (1500, 60, 500)
        assert 15 <= held.misses <= 180 and held.misses % 3 == 0
        calls = {call.id: call for call in store.calls.recent(-1)}
        assert {calls[miss.call].tool for miss in store.calls.misses()} == {each.tool for each in store.calls.misses()}


@pytest.mark.slow
def test_every_listing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_ledger(tmp_path, 100, 10, 20.0, time.time())
    monkeypatch.setenv("FORETOOL_CONFIG", str(path))
    monkeypatch.setattr(at_size, "COMMANDS", (("misses", "--by", "cause"),))
    head, *rows = at_size.rows(load(path), 1, processes=False)
    assert head["calls"] == 100
    assert [row["command"] for row in rows] == [
        "foretool misses --by cause",
        *(f"page: /{address}" for address in at_size.addresses(load(path))),
    ]
    assert len(rows) == 10
    assert all(row["p95_s"] > 0 for row in rows)
