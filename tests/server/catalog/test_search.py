"""Slow parts of a search run in threads, and a search never fails for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import end_of_searches, search_over, tool
from requirements import requirement

from foretool.retrieval.ranking import Query, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.records import Usage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def catalog() -> Catalog:
    entry: Any = SimpleNamespace(name="git", prefix="git", include=("*",), exclude=(), pin=(), description="")
    made = Catalog([entry])
    made.replace("git", [raw(tool("open", "Open an issue")), raw(tool("close", "Close an issue"))])
    return made


class Slow:
    """An encoder that notes what it was asked, and where."""

    name = "slow"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[str] = []
        self.threads: set[int] = set()

    def fetch(self, texts: list[str]) -> None:
        self.asked += texts
        self.threads.add(threading.get_ident())
        if self.error:
            raise self.error


def everything(upstream: str) -> bool:
    return True


def names(ranking: Ranking) -> list[str]:
    return [str(each.tool) for each in ranking.ranked]


def test_where_nothing_is_slow_everything_happens_at_once() -> None:
    search, said = search_over(catalog()), []
    search.find(Query(("open",)), everything, 5, said.append)
    assert [names(ranking) for ranking in said] == [["git__open"]]


def test_tools_that_the_profile_does_not_admit_are_left_out() -> None:
    search = search_over(catalog())
    assert names(search.rank(Query(("an issue",)), everything, 5)) == ["git__close", "git__open"]
    assert names(search.rank(Query(("an issue",)), lambda upstream: upstream != "git", 5)) == []


def test_usage_is_read_once_a_minute() -> None:
    now, read = 100.0, 0

    def usage() -> list[Usage]:
        nonlocal read
        read += 1
        return []

    search = Search(catalog(), usage, lambda: now)
    for later, times in ((0.0, 1), (59.0, 1), (60.0, 2)):
        now = 100.0 + later
        search.rank(Query(("open",)), everything, 5)
        assert read == times


async def test_slow_encoders_are_asked_in_a_thread_for_every_text_that_is_ranked() -> None:
    search, said, slow = search_over(catalog()), [], Slow()
    search.install_encoders(None, [slow])  # type: ignore[list-item]
    query = Query(("open an issue", " ", "close it"))
    search.find(query, everything, 5, lambda ranking: said.append(threading.get_ident()))
    assert said == []
    await end_of_searches(search)
    assert slow.asked == ["open an issue", "close it", "open an issue\nclose it"]
    assert said == [threading.get_ident()] and threading.get_ident() not in slow.threads
    search.find(Query(names=("git__open",)), everything, 5, lambda ranking: said.append("at once"))  # type: ignore[arg-type]
    assert said[-1] == "at once" and len(slow.asked) == 3


async def test_what_goes_wrong_in_them_is_said_and_the_search_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    search, said = search_over(catalog()), []
    ranking = search.rank(Query(("an issue",)), everything, 5)
    search.install_encoders(None, [Slow(RuntimeError("no network"))])  # type: ignore[list-item]
    log = logging.getLogger("foretool.search")
    log.addHandler(caplog.handler)
    try:
        search.find(Query(("an issue",)), everything, 5, said.append)
        await end_of_searches(search)
    finally:
        log.removeHandler(caplog.handler)
    assert said == [ranking] and len(ranking.ranked) == 2
    messages = dict.fromkeys(record.getMessage() for record in caplog.records)
    assert list(messages) == ["encoder slow: no network; ranked without it"]


async def test_an_error_in_a_later_turn_reaches_the_request_that_searched() -> None:
    search, slow, said = search_over(catalog()), Slow(), []
    search.install_encoders(None, [slow])  # type: ignore[list-item]

    def fail(ranking: Ranking) -> None:
        raise RuntimeError("a mistake")

    def guard(step: Callable[[], None]) -> None:
        try:
            step()
        except RuntimeError as error:
            said.append(str(error))

    search.find(Query(("open",)), everything, 5, fail, guard)
    await end_of_searches(search)
    assert said == ["a mistake"]


def test_a_command_waits_for_all_of_it() -> None:
    search, slow = search_over(catalog()), Slow()
    search.install_encoders(None, [slow])  # type: ignore[list-item]
    found = search.find_now(Query(("an issue",)), everything, 5)
    assert (slow.asked, len(found.ranked)) == (["an issue"], 2)


def test_the_version_changes_with_the_tools_and_with_whatever_is_installed() -> None:
    tools = catalog()
    search = search_over(tools)
    seen = {search.version}
    for change in (
        lambda: tools.replace("git", []),
        lambda: search.install_models(None),
        lambda: search.install_encoders(None),
    ):
        change()
        seen.add(search.version)
    search.rank(Query(("open",)), everything, 5)
    assert len(seen) == 4 and search.version in seen


@requirement("discovery:index")
async def test_a_search_waits_for_the_index_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.search.FEW", 0)
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    search, said = search_over(catalog()), []
    search.find(Query(("open",)), everything, 5, lambda ranking: said.append(search.count_unindexed() == 0))
    search.find(Query(names=("git__open",)), everything, 5, lambda ranking: said.append("a name"))
    assert (said, search.count_unindexed()) == (["a name"], 2)
    left = []
    while len(said) < 2:
        left.append(search.count_unindexed())
        await asyncio.sleep(0)
    assert said == ["a name", True]
    assert len(left) > 3  # a turn of the loop for each of the tools at least
    search.find(Query(("open",)), everything, 5, lambda ranking: said.append("at once"))
    assert said[-1] == "at once"


@requirement("discovery:index")
async def test_the_index_is_made_beside_who_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    search = search_over(catalog())
    assert not await search.index(0.0)
    assert await search.index(5.0)
    assert await search.index(0.0)
    await search.stop()
