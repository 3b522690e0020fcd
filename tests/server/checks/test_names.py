"""Names of tools and patterns of rules; whole examinations are in test_doctor.py."""

from __future__ import annotations

from pathlib import Path

from command_fakes import write_config

from foretool.server.catalog.catalog import Catalog
from foretool.server.checks.names import check_pages, check_patterns
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.protocol.jsonrpc import Raw

ECHO = Raw(b'{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}')


def test_a_pattern_without_a_tool_is_told_only_while_all_tools_are_known(tmp_path: Path) -> None:
    config = loader.load(write_config(tmp_path, {"one": {"command": "a", "deny": ["ehco"]}}))
    catalog = Catalog(list(config.servers.values()), {})
    catalog.replace("one", [ECHO])
    assert [(each.code, each.what) for each in check_patterns(catalog, config, complete=True)] == [
        (Code.PATTERN_WITHOUT_TOOL, "one: deny: 'ehco' matches no tool")
    ]
    assert list(check_patterns(catalog, config, complete=False)) == []


def test_servers_whose_pages_can_call_nothing_beside_each_other_are_told_for_each_profile(tmp_path: Path) -> None:
    entries = {name: {"command": "a"} for name in ("maps", "plain", "charts")}
    profiles = {"small": {"servers": ["maps", "plain"]}, "large": {"servers": ["*"]}}
    config = loader.load(write_config(tmp_path, entries, profiles=profiles))
    catalog = Catalog(list(config.servers.values()), {})
    show = b'{"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/page"}}}'
    catalog.replace("plain", [ECHO])
    catalog.replace("maps", [Raw(show)])
    assert list(check_pages(catalog, config)) == []
    catalog.replace("charts", [Raw(show)])
    said = "maps, charts have pages (MCP Apps), which can call no tools beside each other"
    assert [(each.code, each.what) for each in check_pages(catalog, config)] == [
        (Code.PAGES_TOGETHER, f"the list of all servers: {said}"), (Code.PAGES_TOGETHER, f"profile 'large': {said}")
    ]  # fmt: skip
