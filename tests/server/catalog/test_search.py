"""Slow parts of a search run in threads, and a search never fails for them; the index follows the catalog in slices."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fakes import FakeUpstream, bare_server, end_of_searches, search_over, tool
from numpy.typing import NDArray
from requirements import requirement

from foretool.retrieval.rankers.dense import DenseEnsemble
from foretool.retrieval.ranking import Query, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.catalog.search_index import Index
from foretool.server.config.settings import Settings
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.records import Tool, Usage
from tests.server.catalog.test_catalog import catalog as catalog_of
from tests.server.catalog.test_catalog import config_of, listed

pytestmark = pytest.mark.anyio


def catalog() -> Catalog:
    made = Catalog([bare_server("git")])
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


def everything(tool: Tool) -> bool:
    return True


def names(ranking: Ranking) -> list[str]:
    return [str(each.tool) for each in ranking.ranked]


def test_tools_that_the_profile_does_not_admit_are_left_out() -> None:
    search = search_over(catalog())
    assert names(search.rank(Query(("an issue",)), everything, 5)) == ["git__close", "git__open"]
    assert names(search.rank(Query(("an issue",)), lambda tool: tool.upstream != "git", 5)) == []


def test_usage_is_read_once_a_minute() -> None:
    now, read = 100.0, 0

    def usage(profile: str) -> list[Usage]:
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
    monkeypatch.setattr("foretool.server.catalog.search.AT_ONCE", 0)
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    search, said = search_over(catalog()), []
    search.find(Query(("open",)), everything, 5, lambda ranking: said.append(search.count_unindexed() == 0))
    found: list[str] = []
    search.find(Query(names=("git__open",)), everything, 5, lambda ranking: found.extend(names(ranking)))
    assert (said, found, search.count_unindexed()) == ([], [], 2)
    left = []
    while not (said and found):
        left.append(search.count_unindexed())
        await asyncio.sleep(0)
    assert (said, found) == ([True], ["git__open"])
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


@requirement("discovery:index")
def test_the_index_is_made_in_slices_and_is_the_same_in_the_end() -> None:
    one, other = (catalog_of(FakeUpstream("calc"), FakeUpstream("mail")) for _ in range(2))
    for each in (one, other):
        each.replace("calc", listed("add", "sub", "mul"))
        each.replace("mail", listed("send", "add"))
    query, index = Query(("add",)), Index(one)
    assert (index.is_complete, index.count_missing()) == (False, 5)
    assert not index.advance(0.0)
    assert [each.tool for each in index.update(4).rank(query).ranked] == ["calc__add"]  # the one tool that is there
    assert (index.pipeline.is_filling, index.is_complete) == (True, False)
    assert index.update(5).rank(query) == Index(other).update().rank(query)
    assert (index.pipeline.is_filling, index.is_complete, index.count_missing()) == (False, True, 0)


@requirement("discovery:index")
def test_what_changes_while_it_is_indexed_is_indexed_once_more() -> None:
    one = catalog_of(FakeUpstream("calc"))
    index = Index(one)
    one.replace("calc", listed("add", "sub", "mul"))
    assert not index.advance(0.0)
    one.replace("calc", listed("sub", "div"))
    while not index.advance(0.0):
        pass
    assert index.pipeline.corpus.slot_of.keys() == {"calc__sub", "calc__div"}


def test_tools_of_an_upstream_that_left_the_config_leave_the_index() -> None:
    gone, stays = FakeUpstream("gone"), FakeUpstream("stays")
    one = catalog_of(gone, stays)
    index = Index(one)
    one.replace("gone", listed("x"))
    one.replace("stays", listed("y"))
    assert "gone__x" in index.update().corpus.slot_of
    one.configure(list(config_of(stays).servers.values()))
    assert not index.is_complete
    assert index.update().corpus.slot_of.keys() == {"stays__y"}


async def test_a_search_whose_preparation_fails_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = catalog()
    search, said = search_over(one), list[Ranking]()
    search.update_corpus()
    one.replace("git", listed(tool("open"), *(tool(f"t{at}") for at in range(30))))

    async def fails(patience_s: float) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(search, "index", fails)
    search.find(Query(("open",)), everything, 5, said.append)
    await end_of_searches(search)
    assert [names(ranking) for ranking in said] == [["git__open"]]
    assert "could not be prepared" in caplog.text


def time_catalog() -> Catalog:
    made = Catalog([bare_server("clock")])
    text = "Get current time in a specific timezone"
    made.replace("clock", [raw(tool("get_current_time", text, {"timezone": {"type": "string"}}))])
    return made


def test_wordings_that_come_with_foretool_take_part_as_the_setting_says() -> None:
    search = Search(time_catalog(), list, time.time, settings=Settings())
    wish = Query(("is it evening in New York",))
    assert names(search.rank(wish, everything, 5)) == ["clock__get_current_time"]
    before = search.version
    search.configure(Settings())
    assert search.version == before
    search.configure(Settings(shipped_wordings=False))
    assert search.rank(wish, everything, 5).ranked == () and search.version != before
    search.configure(Settings())
    assert names(search.rank(wish, everything, 5)) == ["clock__get_current_time"]


def test_a_search_that_begins_like_another_one_follows_its_own_setting() -> None:
    catalog, wish = time_catalog(), Query(("is it evening in New York",))
    one = Search(catalog, list, time.time, settings=Settings())
    other = Search(catalog, list, time.time, settings=Settings(shipped_wordings=False))
    other.index_like(one)
    assert other.rank(wish, everything, 5).ranked == () and one.rank(wish, everything, 5).ranked


class Noting:
    """An encoder that notes in which threads it reads queries."""

    name = "noting"

    def __init__(self) -> None:
        self.threads: dict[str, int] = {}

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[[len(text) % 2 for text in texts]]

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        for text in texts:
            assert text not in self.threads
            self.threads[text] = threading.get_ident()
        return self.documents(texts)


async def test_encoders_read_a_long_task_in_a_thread_and_a_short_one_at_once() -> None:
    search, said, noting = search_over(catalog()), list[Ranking](), Noting()
    dense = DenseEnsemble([noting])
    digests = search.update_corpus().digests
    dense.heads[0].add({digest: np.eye(2, dtype=np.float32)[at].tobytes() for at, digest in enumerate(digests)})
    search.install_encoders(dense)
    search.rank(Query(("list",)), everything, 5)  # the encoders follow the corpus
    noting.threads.clear()
    search.find(Query(("open an issue",)), everything, 5, said.append)
    assert len(said) == 1
    long = "Open an issue about the crash. " * 20
    search.find(Query((long,)), everything, 5, said.append)
    assert len(said) == 1
    await end_of_searches(search)
    assert len(said) == 2
    assert noting.threads.pop("open an issue") == threading.get_ident()
    assert long in noting.threads and threading.get_ident() not in noting.threads.values()
