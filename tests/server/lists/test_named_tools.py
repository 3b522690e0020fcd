"""Tools are named in the definition of the bridge that runs them, and only those that a profile finds."""

from __future__ import annotations

import json

from fakes import FakeUpstream, config_of, tool

from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import LiveConfig
from foretool.server.lists import own_tools
from foretool.server.lists.named_tools import NamedTools
from foretool.server.protocol.jsonrpc import raw
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import ToolId

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
    named = NamedTools(catalog)
    definitions = dict(own_tools.definitions({"files": 3}))
    before = {name: bytes(each) for name, each in definitions.items()}
    reach = TrustPolicy(LiveConfig(config)).reach(config.profiles["p"])
    named.write(definitions, [READ, WRITE, DROP, ToolId("files__gone")], reach)
    told = {name: json.loads(bytes(each))["description"] for name, each in definitions.items()}
    assert told["call_tool"].endswith("Often needed: files__read().")
    assert told["call_tool_write"].endswith("Often needed: files__write().")
    assert bytes(definitions[ToolId("discover_tools")]) == before[ToolId("discover_tools")]
    one, gone = named.tokens([READ]), ToolId("files__gone")
    assert one > 0 == named.tokens([gone]) == named.cost(gone).own
    assert named.tokens([READ, WRITE, gone]) < one + named.tokens([WRITE])
