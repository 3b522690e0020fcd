"""A proxy deletes old records about once an hour, while no other one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import live_config
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL

from foretool.server.recording.retention import DAY_S, SETTLED_S, Retention
from foretool.storage.opening import open_store

pytestmark = pytest.mark.anyio


@requirement("trust:data:retention")
@pytest.mark.parametrize(("days", "left"), [(90, 1), (0, 3), (0.5, 0)])
async def test_records_older_than_the_setting_are_deleted(days: float, left: int, tmp_path: Path) -> None:
    now = [1000 * DAY_S]
    with open_store(tmp_path / "s.sqlite3") as store:
        store.calls.record([replace(CALL, at=now[0] - age * DAY_S) for age in (200, 91, 1)])
        retention = Retention(store, live_config(retention_days=days), set, lambda: now[0])
        retention.tick()
        assert not retention.is_working
        now[0] += SETTLED_S
        retention.tick()
        await retention.finish()
        assert len(store.calls.recent(-1)) == left


async def test_of_two_proxies_one_deletes_in_an_hour(tmp_path: Path) -> None:
    now = [1000 * DAY_S]
    path = tmp_path / "s.sqlite3"
    with open_store(path) as one, open_store(path) as two:
        both = [Retention(store, live_config(), set, lambda: now[0]) for store in (one, two)]
        now[0] += SETTLED_S
        for each in both:
            each.tick()
            await each.finish()
            one.calls.record([replace(CALL, at=DAY_S)])
        assert len(one.calls.recent(-1)) == 2
        now[0] += 3600.0
        both[1].tick()
        await both[1].finish()
        assert one.calls.recent(-1) == []
