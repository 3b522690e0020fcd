"""The definitions of our own tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool
from requirements import requirement

from foretool.retrieval.tokens import count_tokens, estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import LiveConfig
from foretool.server.lists import own_tools
from foretool.server.lists.order import NameCost
from foretool.server.protocol.jsonrpc import raw
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Tool, ToolId


@requirement("discovery:definition")
@pytest.mark.parametrize("servers", [0, 1, 10, 500])
def test_the_definition_costs_at_most_250_tokens_however_many_servers_there_are(servers: int) -> None:
    counts = {f"some-server-{n}": 10 for n in range(servers)}
    definitions = dict(own_tools.definitions(counts))
    assert list(definitions) == ["call_tool", "call_tool_write", "discover_tools"]
    assert count_tokens([bytes(definitions[ToolId("discover_tools")]).decode()]) <= [250]


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


READ, WRITE, DROP = (ToolId(f"files__{name}") for name in ("read", "write", "drop"))


def test_each_bridge_names_what_it_runs_and_a_denied_tool_stands_in_none() -> None:
    config = config_of(FakeUpstream("files"), profiles={"p": {"deny": ["files__drop"]}})
    catalog = Catalog(list(config.servers.values()))
    tools = [
        {**tool("read", "Reads"), "annotations": {"readOnlyHint": True}},
        tool("write", "Writes"),
        tool("drop", ""),
    ]
    catalog.replace("files", [raw(each) for each in tools])
    definitions = dict(own_tools.definitions({"files": 3}))
    before = {name: bytes(each) for name, each in definitions.items()}
    reach = TrustPolicy(LiveConfig(config)).reach(config.profiles["p"])
    own_tools.name_tools(definitions, [READ, WRITE, DROP, ToolId("files__gone")], catalog, reach)
    told = {name: json.loads(bytes(each))["description"] for name, each in definitions.items()}
    assert told["call_tool"].endswith("Some of them: files__read().")
    assert told["call_tool_write"].endswith("Some of them: files__write().")
    assert bytes(definitions[ToolId("discover_tools")]) == before[ToolId("discover_tools")]
    assert own_tools.name_cost(catalog.get(READ)).own > 0 == own_tools.name_cost(None).own


def test_a_name_costs_its_prefix_once() -> None:
    def cost(name: str) -> NameCost:
        return own_tools.name_cost(Tool(ToolId(name), "s", "x", b"{}", ""))

    group, shared, own = cost("s__x")
    assert (group, shared > 0, own > 0) == ("s__", True, True)
    assert (cost("read"), cost("a b")) == (NameCost("", 0, estimate("read()")), NameCost())
