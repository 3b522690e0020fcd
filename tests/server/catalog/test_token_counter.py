"""Tokens are counted some at a time."""

from __future__ import annotations

import asyncio

import pytest
from fakes import FakeUpstream, config_of, failing_store
from requirements import requirement

from foretool.retrieval.tokens import count_tokens
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import write_definition
from foretool.server.catalog.token_counter import TokenCounter
from foretool.server.protocol.jsonrpc import raw


@requirement("list:budget")
def test_tokens_are_counted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.token_counter.COUNTED_AT_ONCE", 2)
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    counter = TokenCounter(catalog, failing_store()[0].catalog, lambda: None)
    catalog.replace("calc", [raw({"name": f"t{n}", "inputSchema": {"type": "object"}}) for n in range(3)])
    asyncio.run(counter.count())
    assert [each.id for each in catalog.find_uncounted()] == ["calc__t2"]
    asyncio.run(counter.count())
    assert list(catalog.find_uncounted()) == []
    written = [bytes(write_definition(each)).decode() for each in catalog.tools()]
    assert [each.tokens for each in catalog.tools()] == count_tokens(written)


@requirement("trust:limits:housekeeping")
def test_a_long_text_of_a_stranger_leaves_the_loop_to_others_while_it_is_counted() -> None:
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    counter = TokenCounter(catalog, failing_store()[0].catalog, lambda: None)
    catalog.replace("calc", [raw({"name": "t", "description": "字" * 50_000, "inputSchema": {"type": "object"}})])
    turns = 0

    async def count() -> None:
        nonlocal turns
        counting = asyncio.ensure_future(counter.count())
        while not counting.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(count())
    assert turns > 5 and list(catalog.find_uncounted()) == []
