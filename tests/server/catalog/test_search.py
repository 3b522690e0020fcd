"""Slow parts of a search run in threads, and a search never fails for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import tool
from requirements import requirement

from foretool.retrieval.ranking import Query, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Searching
from foretool.server.protocol.jsonrpc import raw

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


def test_where_nothing_is_slow_everything_happens_at_once() -> None:
    searching, said = Searching(catalog()), []
    searching.before(Query(("an issue",)), lambda: said.append("go"))
    assert said == ["go"]


async def test_slow_encoders_are_asked_in_a_thread_for_every_text_that_is_ranked() -> None:
    searching, said, slow = Searching(catalog()), [], Slow()
    searching.encoders = [slow]  # type: ignore[list-item]
    searching.before(Query(("open an issue", " ", "close it")), lambda: said.append(threading.get_ident()))
    assert said == []
    await searching.finished()
    assert slow.asked == ["open an issue", "close it", "open an issue\nclose it"]
    assert said == [threading.get_ident()] and threading.get_ident() not in slow.threads
    searching.before(Query(names=("git__open",)), lambda: said.append("at once"))
    assert said[-1] == "at once" and len(slow.asked) == 3


async def test_what_goes_wrong_in_them_is_said_and_the_search_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    searching, said = Searching(catalog()), []
    searching.encoders = [Slow(RuntimeError("no network"))]  # type: ignore[list-item]
    log = logging.getLogger("foretool.searching")
    log.addHandler(caplog.handler)
    try:
        searching.before(Query(("open",)), lambda: said.append("go"))
        await searching.finished()
    finally:
        log.removeHandler(caplog.handler)
    assert said == ["go"]
    messages = dict.fromkeys(record.getMessage() for record in caplog.records)
    assert list(messages) == ["encoder slow: no network; ranked without it"]


def test_a_command_waits_for_all_of_it() -> None:
    searching, slow, ranking = Searching(catalog()), Slow(), Ranking(total=2)
    searching.encoders = [slow]  # type: ignore[list-item]
    assert searching.now(Query(("open",)), lambda: ranking) is ranking
    assert slow.asked == ["open"]


@requirement("discovery:index")
async def test_a_search_waits_for_the_index_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.search.FEW", 0)
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    tools = catalog()
    searching, said = Searching(tools), []
    searching.before(Query(("open",)), lambda: said.append(tools.is_indexed))
    searching.before(Query(names=("git__open",)), lambda: said.append("a name"))
    assert (said, tools.unindexed()) == (["a name"], 2)
    left = []
    while len(said) < 2:
        left.append(tools.unindexed())
        await asyncio.sleep(0)
    assert said == ["a name", True]
    assert len(left) > 3  # a turn of the loop for each of the tools at least
    searching.before(Query(("open",)), lambda: said.append("at once"))
    assert said[-1] == "at once"


@requirement("discovery:index")
async def test_the_index_is_made_beside_who_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    tools = catalog()
    searching = Searching(tools)
    assert not await searching.index(0.0)
    assert await searching.index(5.0)
    assert await searching.index(0.0)
    await searching.stop()
