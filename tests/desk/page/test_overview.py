"""The figures of the first page, without HTML."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from browsing import HOME, browser, make_door
from command_fakes import fill, write_config
from msgspec.structs import replace
from stored_records import CALL

from foretool.desk.page import overview
from foretool.desk.page.viewer import Viewer
from foretool.server.config.loader import load
from foretool.server.recording.cost_sums import add_everything
from foretool.server.recording.costs import Costs

pytestmark = pytest.mark.anyio

ALL = Viewer("key")


def test_the_bound_of_a_share_is_wilsons() -> None:
    assert overview.wilson(0, 0) is None
    low, high = overview.wilson(2, 20) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.0279, 0.3010)  # Newcombe 1998, by hand
    assert overview.wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert overview.wilson(12, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


def test_bars_are_days_in_order_and_their_heights_are_shares() -> None:
    rows = [
        Costs("2026-01-02", "a", calls=10, hidden=5),
        Costs("2026-01-01", "a", calls=2),
        Costs("2026-01-02", "b", calls=10),
    ]
    assert overview.make_bars(rows) == [
        overview.Bar("2026-01-01", 2, 0, 0.1, 0.0),
        overview.Bar("2026-01-02", 20, 5, 1.0, 0.25),
    ]
    assert overview.make_bars([]) == []


def test_the_overview_of_a_new_user_is_empty_and_names_the_servers(tmp_path: Path) -> None:
    page = overview.read_overview(load(write_config(tmp_path)), ALL)
    assert (page.bound, page.bars, page.most_missed, page.proxies) == (None, [], [], 0)
    assert [row.name for row in page.servers] == ["calc", "sky"]


def test_one_profile_has_its_own_servers_and_no_figures_of_others(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["calc"]}})
    fill(path).close()
    page = overview.read_overview(load(path), Viewer("key", "work", may_decide=False))
    assert [(row.name, row.address) for row in page.servers] == [("calc", "")]
    assert (page.tools, page.total.calls, page.most_missed, page.latest, page.models) == (1, 0, [], [], ())


@pytest.mark.anyio
async def test_a_log_that_is_not_added_up_is_added_up_beside_the_page_which_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "AT_ONCE", 3)
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        store.calls.record([replace(CALL, session="s9", at=now - 9000 + number) for number in range(8)])
        waiting = store.costs.waiting()
    page = overview.read_overview(load(path), ALL)
    assert waiting >= 8 and (page.waiting, page.total.calls) == (waiting, 0)
    async with browser(door := make_door(path)) as client:
        first = (await client.get(f"{HOME}{door.place}/")).text
        for thread in threading.enumerate():
            if getattr(thread, "_target", None) is add_everything:
                thread.join(30.0)
        second = (await client.get(f"{HOME}{door.place}/")).text
    assert f"{waiting} calls are still being added up" in first and "still being added up" not in second
    page = overview.read_overview(load(path), ALL)
    assert page.waiting == 0 and page.total.calls == 8
    assert overview.read_overview(load(path), Viewer("key", "", may_decide=False)).waiting == 0
