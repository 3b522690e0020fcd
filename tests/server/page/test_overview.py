"""The figures of the first page, without HTML."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.config.loader import load
from foretool.server.page import overview
from foretool.server.page.viewer import Viewer
from foretool.server.recording.costs import Costs

ALL = Viewer("key")


def test_the_bound_of_a_share_is_wilsons() -> None:
    assert overview.wilson(0, 0) is None
    low, high = overview.wilson(2, 20) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.0279, 0.3010)  # Newcombe 1998, by hand
    assert overview.wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert overview.wilson(12, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


def test_bars_are_days_in_order_and_their_heights_are_shares() -> None:
    rows = [
        Costs("2026-01-02", "a", calls=10, misses=5),
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
