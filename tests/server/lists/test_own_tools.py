"""The definitions of our own tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from requirements import requirement

from foretool.retrieval.tokens import count
from foretool.server.lists import own_tools
from foretool.storage.records import ToolId


@requirement("discovery:definition")
@pytest.mark.parametrize("servers", [0, 1, 10, 500])
def test_the_definition_costs_at_most_250_tokens_however_many_servers_there_are(servers: int) -> None:
    counts = {f"some-server-{n}": 10 for n in range(servers)}
    definitions = dict(own_tools.definitions(counts))
    assert list(definitions) == ["call_tool", "call_tool_write", "discover_tools"]
    assert count([bytes(definitions[ToolId("discover_tools")]).decode()]) <= [250]


def described(counts: dict[str, int], **more: Any) -> str:
    return str(json.loads(bytes(dict(own_tools.definitions(counts, **more))[ToolId("discover_tools")]))["description"])


@requirement("discovery:counts")
def test_the_definition_counts_tools_and_servers_in_words_that_are_true() -> None:
    assert described({"a": 8, "b": 0}, unlisted=20).startswith(
        "Finds tools for a task among 8 tools on 1 server so far (20 servers not listed yet); your list is partial."
    )
    assert described({}, unlisted=7).startswith(
        "Finds tools for a task; 7 servers not listed yet; your list is partial."
    )
    assert described({"a": 1000, "b": 234}).startswith(
        "Finds tools for a task among 1,234 tools on 2 servers; your list is partial."
    )
    assert "your list has them all" in described({"a": 1}, is_whole=True)
    assert "your list is partial" in described({"a": 1}, is_whole=True, unlisted=1)


def test_a_bridge_names_the_tools_that_it_runs() -> None:
    ((_, call), *_) = own_tools.definitions({"calc": 2})
    named = json.loads(bytes(own_tools.name_tools(call, ["calc__add(a: number)", "calc__pi()"])))
    before = json.loads(bytes(call))
    assert named == {
        **before,
        "description": f"{before['description']} Often needed: calc__add(a: number), calc__pi().",
    }
