"""Misses by filter, and one of them as a timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import WEATHER, fill, write_config

from foretool.desk.page import history
from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import load
from foretool.server.ledger.story import CAUSES
from foretool.storage.records import MissFilter

ALL = Viewer("key")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.catalog.save_exposed_names({WEATHER: ("sky", "forecast")})
    return path


def test_a_miss_is_a_timeline_in_order(path: Path) -> None:
    page = history.read_miss(load(path), ALL, 1)
    assert page is not None
    assert [step.kind for step in page.story] == ["session", "list", "search", "miss", "call"]
    assert [step.what for step in page.story if step.kind == "miss"] == ["needed sky__forecast, which it did not see"]
    assert [step.kind for step in page.story if step.is_own] == ["miss"]
    assert history.read_miss(load(path), ALL, 2) is None


def test_misses_are_filtered_by_what_the_form_sent(path: Path) -> None:
    def count(**query: str) -> int:
        return history.read_misses(load(path), ALL, history.read_filter(query, CAUSES, 1000.0, ALL))[0]

    assert (count(), count(server="sky"), count(server="calc")) == (1, 1, 0)
    assert (count(cause="budget"), count(cause="rank"), count(cause="' or 1=1")) == (1, 0, 1)
    assert (count(recovered="yes"), count(recovered="no"), count(client="cursor"), count(tool="FORE")) == (1, 0, 1, 1)
    assert history.read_filter({"since": "1d"}, CAUSES, 100_000.0, ALL) == MissFilter(since=13_600.0)


def test_a_miss_of_another_profile_is_not_there(path: Path) -> None:
    for profile, is_there in (("", True), ("work", False)):
        found = history.read_miss(load(path), Viewer("key", profile), 1)
        assert (found is not None) is is_there
        wanted = history.read_filter({}, CAUSES, 1000.0, Viewer("key", profile))
        assert history.read_misses(load(path), Viewer("key", profile), wanted)[0] == int(is_there)
    assert history.read_clients(load(path), Viewer("key", "work")) == []
