"""A proxy adds up the log in the background, whatever other proxies do, and also the log of an earlier version."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from stored_records import CALL

from foretool.server.recording import costs
from foretool.server.recording.costs import EVERY_S, GAP_S, SETTLED_S, CostKeeper
from foretool.storage.opening import open_store

pytestmark = pytest.mark.anyio


async def test_of_two_proxies_one_adds_up_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "PAUSE_S", 0.0)
    monkeypatch.setattr(costs, "PART", 7)
    now = [time.time()]
    with open_store(tmp_path / "s.sqlite3") as one, open_store(tmp_path / "s.sqlite3") as two:
        one.calls.record([replace(CALL, session=f"s{at}", at=now[0] - 9000 + at) for at in range(40)])
        keepers = [CostKeeper(store, lambda: now[0]) for store in (one, two)]
        for keeper in keepers:
            keeper.tick()
            assert not keeper.is_working
        now[0] += SETTLED_S
        for keeper in keepers:
            keeper.tick()
            await keeper.finish()
        assert sum(each.calls for each in one.costs.sums(0.0)) == 40
        one.calls.record([replace(CALL, session="later", at=now[0])])
        now[0] += GAP_S + EVERY_S
        keepers[1].tick()
        await keepers[1].finish()
        assert sum(each.calls for each in one.costs.sums(0.0)) == 41
