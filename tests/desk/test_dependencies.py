"""The graph of what tools need: schemas and calls together, each edge with its evidence."""

from __future__ import annotations

import json
from pathlib import Path

from command_fakes import write_config

from foretool.desk.dependencies import draw_graph, learned_graph
from foretool.server import offline
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId, UpstreamRecord
from foretool.storage.steps import finish


def test_edges_come_from_values_that_were_seen_to_flow(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    first, second = ToolId("calc__find"), ToolId("calc__open")
    with open_store(config.storage) as store:
        record = UpstreamRecord("calc", fingerprint(config.servers["calc"]), "legacy", "", "", '{"tools": {}}', 1.0)
        schema = {"type": "object", "properties": {"file_id": {"type": "string"}}, "required": ["file_id"]}
        texts = {
            first: {"name": "find", "description": "Finds files."},
            second: {"name": "open", "description": "Opens a file.", "inputSchema": schema},
        }
        tools = [
            Tool(name, "calc", str(text["name"]), json.dumps(text).encode(), name, 20) for name, text in texts.items()
        ]
        finish(store.catalog.save_upstream(record, tools))
        store.flows.add({(first, second, "id", "file_id"): 3}, 5.0)
    with offline.open_offline(config) as app:
        (edge,) = draw_graph(app).producers(second)
        assert learned_graph(app) is None
    assert edge.before == first and any("file_id" in line for line in edge.evidence)
