"""A small catalog of our own for the tests of ranking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from foretool.storage.records import Tool, ToolId


def tool(server: str, name: str, description: str = "", properties: Mapping[str, Any] | None = None) -> Tool:
    definition = {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": dict(properties or {})},
    }
    return raw_tool(server, name, json.dumps(definition).encode())


def raw_tool(server: str, name: str, definition: bytes) -> Tool:
    return Tool(ToolId(f"{server}__{name}"), server, name, definition, sha256(definition).hexdigest())


def catalog() -> list[Tool]:
    return [
        tool("github", "create_issue", "Open a new issue in a repository.", {"title": {"description": "Its title"}}),
        tool("github", "list_issues", "List the issues of a repository, newest first."),
        tool("github", "merge_pull_request", "Merge a pull request."),
        tool("domains", "whois_domain", "Look up who registered a domain."),
        tool("domains", "check_availability", "Tell whether a domain can be bought."),
        tool("time", "convert_time", "Convert a time between time zones.", {"zone": {"enum": ["Europe/Berlin"]}}),
        tool("users", "getUser", "Read one account by its id."),
        tool("web", "search", "Find pages on the web."),
        tool("web", "fetch", "Download a page and return it as Markdown."),
    ]


def ids(*names: str) -> Sequence[ToolId]:
    return [ToolId(name) for name in names]


def schema_tool(name: str, takes: dict[str, Any] | None = None, gives: Any = None, required: Any = None) -> Tool:
    definition: dict[str, Any] = {
        "name": name,
        "inputSchema": {"type": "object", "properties": takes or {}, "required": required or []},
    }
    if gives is not None:
        definition["outputSchema"] = gives
    return Tool(ToolId(f"u__{name}"), "u", name, json.dumps(definition).encode(), "")


DEPENDENT_TOOLS = (
    schema_tool("login", {"user": {}}, {"properties": {"token": {}}}, ["user"]),
    schema_tool("post", {"token": {}, "text": {}}, {"properties": {"post_id": {}}}, ["token", "text"]),
    schema_tool("sum", {"a": {}, "b": {}}, {"properties": {"total": {}}}, ["a", "b"]),
)
"""Of one upstream: `login` gives the token that `post` requires, `sum` has to do with neither."""
