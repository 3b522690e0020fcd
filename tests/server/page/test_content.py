"""The figures and rows of the page, without HTML."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, fill, write_config

from foretool.server.commands.causes import CAUSES, NOTICED
from foretool.server.config.loader import load
from foretool.server.page import content
from foretool.server.recording.costs import Costs
from foretool.storage.records import MissFilter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.catalog.save_exposed_names({WEATHER: ("sky", "forecast")})
    return path


def test_the_bound_of_a_share_is_wilsons() -> None:
    assert content.wilson(0, 0) is None
    low, high = content.wilson(2, 20) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.0279, 0.3010)  # Newcombe 1998, by hand
    assert content.wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert content.wilson(12, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


def test_bars_are_days_in_order_and_their_heights_are_shares() -> None:
    rows = [
        Costs("2026-01-02", "a", calls=10, misses=5),
        Costs("2026-01-01", "a", calls=2),
        Costs("2026-01-02", "b", calls=10),
    ]
    assert content.make_bars(rows) == [
        content.Bar("2026-01-01", 2, 0, 0.1, 0.0),
        content.Bar("2026-01-02", 20, 5, 1.0, 0.25),
    ]
    assert content.make_bars([]) == []


def test_a_miss_is_a_timeline_in_order(path: Path) -> None:
    page = content.read_miss(load(path), 1, NOTICED)
    assert page is not None
    assert [step.kind for step in page.steps] == ["session", "list", "search", "calls", "miss", "call"]
    assert [step.kind for step in page.steps if step.is_miss] == ["miss"]
    assert content.read_miss(load(path), 2, NOTICED) is None


def test_misses_are_filtered_by_what_the_form_sent(path: Path) -> None:
    def count(**query: str) -> int:
        return content.read_misses(load(path), content.read_filter(query, CAUSES, 1000.0))[0]

    assert (count(), count(server="sky"), count(server="calc")) == (1, 1, 0)
    assert (count(cause="budget"), count(cause="rank"), count(cause="' or 1=1")) == (1, 0, 1)
    assert (count(recovered="yes"), count(recovered="no"), count(client="cursor"), count(tool="FORE")) == (1, 0, 1, 1)
    assert content.read_filter({"since": "1d"}, CAUSES, 100_000.0) == MissFilter(since=13_600.0)


def test_tools_come_with_their_use_and_the_users_words(tmp_path: Path) -> None:
    words = {"forecast": {"description": "My weather"}}
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky", "tools": words}})
    fill(path).close()
    total, rows = content.read_tools(load(path), "", "")
    assert (total, rows[0].id, rows[0].calls, rows[0].misses, rows[0].is_yours) == (3, WEATHER, 1, 1, True)
    assert [row.id for row in content.read_tools(load(path), "ADD", "")[1]] == [CALC]
    page = content.read_tool(load(path), WEATHER)
    assert page is not None
    assert (page.description, page.original) == ("My weather", "Forecast of the weather for a city.")
    assert [miss.id for miss in page.misses] == [1]
    assert content.read_tool(load(path), "no") is None


def test_the_overview_of_a_new_user_is_empty_and_names_the_servers(tmp_path: Path) -> None:
    page = content.read_overview(load(write_config(tmp_path)))
    assert (page.bound, page.bars, page.most_missed, page.proxies) == (None, [], [], 0)
    assert [row.name for row in page.servers] == ["calc", "sky"]
