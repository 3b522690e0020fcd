"""A proxy keeps the words of its tools for a prompt hook once they are indexed, and again when they have changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from fakes import tool

from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.server.catalog import large_catalog
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.large_catalog import CatalogReader, KeptWords
from foretool.server.catalog.search import Search
from foretool.server.catalog.unread import read_words, words_key
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.steps import finish
from foretool.storage.store import Store
from tests.server.catalog.test_search import catalog as catalog_of_git

MANY = [tool(f"open_{at}", "Open an issue") for at in range(large_catalog.LEAST + 1)]


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(large_catalog, "SETTLED_S", 0.0)
    found = catalog_of_git()
    found.replace("git", [raw(each) for each in MANY])
    return found


def test_words_are_kept_once_all_tools_are_indexed(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    kept = KeptWords(store.catalog, catalog, search, lambda: "these")
    finish(kept.save())
    assert read_words(store.catalog, "these") is None, "nothing is indexed for this"
    search.update_corpus()
    finish(kept.save())
    table = read_words(store.catalog, "these")
    assert table is not None and len(table.best(weigh_terms("issues"), {})) == len(MANY)
    assert table.tool(0).decode() == '["git__open_0","git","open_0"]'
    assert read_words(store.catalog, "those") is None


def test_words_of_a_catalog_that_has_changed_are_kept_anew(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    kept = KeptWords(store.catalog, catalog, search, lambda: "these")
    search.update_corpus()
    finish(kept.save())
    catalog.replace("git", [raw(each) for each in [*MANY, tool("weather", "Tell the weather")]])
    search.update_corpus()
    finish(kept.save())
    table = read_words(store.catalog, "these")
    assert table is not None and len(table.best(weigh_terms("weather"), {})) == 1


def test_words_hold_until_the_store_has_another_catalog(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    finish(KeptWords(store.catalog, catalog, search, lambda: "these").save())
    store.catalog.save_exposed_names({catalog.of("git")[0].id: ("git", "another")})
    assert read_words(store.catalog, "these") is None


def test_words_that_change_while_they_are_packed_are_not_kept(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    steps = KeptWords(store.catalog, catalog, search, lambda: "these").save()
    next(steps)
    catalog.replace("git", [])
    search.update_corpus()
    finish(steps)
    assert read_words(store.catalog, "these") is None


def test_another_proxy_that_finds_them_kept_writes_nothing(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    changes = store.catalog.changes()
    assert changes is not None
    store.catalog.save_summary(words_key("these"), changes, b"of another proxy")
    finish(KeptWords(store.catalog, catalog, search, lambda: "these").save())
    assert store.catalog.summary(words_key("these")) == b"of another proxy"
    assert read_words(store.catalog, "these") is None, "what is no table is none"


def test_a_small_catalog_keeps_none(store: Store, catalog: Catalog) -> None:
    catalog.replace("git", [raw(each) for each in MANY[:20]])
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    finish(KeptWords(store.catalog, catalog, search, lambda: "these").save())
    assert read_words(store.catalog, "these") is None


pytestmark = pytest.mark.anyio


class SlowCatalog:
    """Is read in three steps, the last of which may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.is_unread = True
        self.fails = fails
        self.readings = 0

    def read_rest(self) -> Iterator[None]:
        self.readings += 1
        yield from (None, None, None)
        if self.fails:
            raise ValueError("damaged")
        self.is_unread = False


async def test_it_calls_back_at_once_where_everything_is_read() -> None:
    catalog, heard = SlowCatalog(), list[str]()
    catalog.is_unread = False
    CatalogReader(cast("Catalog", catalog)).when_read(lambda: heard.append("now"))
    assert heard == ["now"]


@pytest.mark.parametrize("fails", [False, True])
async def test_it_reads_once_for_all_who_wait_and_calls_them_also_where_that_fails(*, fails: bool) -> None:
    catalog, heard = SlowCatalog(fails=fails), list[str]()
    reader = CatalogReader(cast("Catalog", catalog))
    reader.when_read(lambda: heard.append("first"))
    reader.when_read(lambda: heard.append("second"))
    assert heard == []
    await reader.finish()
    assert heard == ["first", "second"]
    assert catalog.readings == 1
