"""The index follows the catalog in slices and knows in the end what an index made at once knows."""

from __future__ import annotations

import json

from fakes import FakeUpstream, tool
from requirements import requirement

from foretool.retrieval.ranking import Query
from foretool.server.catalog.index import Index
from foretool.storage.records import Tool, ToolId
from tests.server.catalog.test_catalog import catalog, config_of, listed


@requirement("discovery:index")
def test_the_index_is_made_in_slices_and_is_the_same_in_the_end() -> None:
    one, other = (catalog(FakeUpstream("calc"), FakeUpstream("mail")) for _ in range(2))
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
    one = catalog(FakeUpstream("calc"))
    index = Index(one)
    one.replace("calc", listed("add", "sub", "mul"))
    assert not index.advance(0.0)
    one.replace("calc", listed("sub", "div"))
    while not index.advance(0.0):
        pass
    assert index.pipeline.corpus.slot_of.keys() == {"calc__sub", "calc__div"}


def test_tools_that_the_store_remembers_are_indexed() -> None:
    one = catalog(FakeUpstream("calc"))
    data = json.dumps(tool("add", "Adds")).encode()
    one.load("calc", [Tool(ToolId("calc__add"), "calc", "add", data, "h1", 12)])
    one.settle()
    assert "calc__add" in Index(one).update().corpus


def test_tools_of_an_upstream_that_left_the_config_leave_the_index() -> None:
    gone, stays = FakeUpstream("gone"), FakeUpstream("stays")
    one = catalog(gone, stays)
    index = Index(one)
    one.replace("gone", listed("x"))
    one.replace("stays", listed("y"))
    assert "gone__x" in index.update().corpus
    one.configure(list(config_of(stays).servers.values()))
    assert not index.is_complete
    assert index.update().corpus.slot_of.keys() == {"stays__y"}
