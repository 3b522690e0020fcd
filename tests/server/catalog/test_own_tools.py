"""The definitions of our own two tools."""

from __future__ import annotations

import pytest
from requirements import requirement

from foretool.retrieval.tokens import count
from foretool.server.catalog import own_tools
from foretool.storage.records import ToolId


@requirement("discovery:definition")
@pytest.mark.parametrize("servers", [0, 1, 10, 500])
def test_the_definition_costs_at_most_250_tokens_however_many_servers_there_are(servers: int) -> None:
    counts = {f"some-server-{n}": 10 for n in range(servers)}
    definitions = dict(own_tools.definitions(counts))
    assert list(definitions) == ["call_tool", "call_tool_write", "discover_tools"]
    assert count([bytes(definitions[ToolId("discover_tools")]).decode()]) <= [250]
