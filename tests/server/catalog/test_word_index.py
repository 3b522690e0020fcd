"""A proxy keeps the words of its tools for a prompt hook once they are indexed, and again when they have changed."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, config_of, tool

from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.server.catalog import word_index
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.catalog.word_index import WordIndexKeeper, digest_inputs, read_words
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.steps import finish
from foretool.storage.store import Store
from tests.server.catalog.test_search import catalog as catalog_of_git

MANY = [tool(f"open_{at}", "Open an issue") for at in range(word_index.LEAST + 1)]


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(word_index, "SETTLED_S", 0.0)
    found = catalog_of_git()
    found.replace("git", [raw(each) for each in MANY])
    return found


def test_words_are_kept_once_all_tools_are_indexed(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    kept = WordIndexKeeper(store.catalog, catalog, search, lambda: "these")
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
    kept = WordIndexKeeper(store.catalog, catalog, search, lambda: "these")
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
    finish(WordIndexKeeper(store.catalog, catalog, search, lambda: "these").save())
    store.catalog.save_exposed_names({catalog.of("git")[0].id: ("git", "another")})
    assert read_words(store.catalog, "these") is None


def test_words_that_change_while_they_are_packed_are_not_kept(store: Store, catalog: Catalog) -> None:
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    steps = WordIndexKeeper(store.catalog, catalog, search, lambda: "these").save()
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
    store.catalog.save_word_index("these", changes, b"of another proxy")
    finish(WordIndexKeeper(store.catalog, catalog, search, lambda: "these").save())
    assert store.catalog.word_index("these") == b"of another proxy"
    assert read_words(store.catalog, "these") is None, "what is no table is none"


def test_a_small_catalog_keeps_none(store: Store, catalog: Catalog) -> None:
    catalog.replace("git", [raw(each) for each in MANY[:20]])
    search = Search(catalog, list, lambda: 0.0)
    search.update_corpus()
    finish(WordIndexKeeper(store.catalog, catalog, search, lambda: "these").save())
    assert read_words(store.catalog, "these") is None


def test_whatever_tools_and_names_follow_from_makes_another_digest() -> None:
    def digest(*made: FakeUpstream) -> str:
        config = config_of(*made)
        return digest_inputs(list(config.servers.values()), config.prefixes, dict.fromkeys(config.servers, "f"))

    one, two = FakeUpstream("one"), FakeUpstream("two")
    entries = [
        {}, {"prefix": "p"}, {"include": ["a"]}, {"exclude": ["a"]}, {"pin": ["a"]},
        {"tools": {"a": {"name": "b"}}},
    ]  # fmt: skip
    digests = {digest(one, two), digest(two, one), digest(one)}
    digests |= {digest(FakeUpstream("one", entry=entry), two) for entry in entries}
    assert len(digests) == 3 + len(entries) - 1
    assert digest(one, two) == digest(FakeUpstream("one", entry={"timeout_s": 7, "description": "other"}), two)
