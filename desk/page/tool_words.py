"""The members of a tool's definition, as text."""

from __future__ import annotations

from foretool.server.protocol import jsonrpc
from foretool.storage.records import Tool


def member(tool: Tool, name: str) -> str:
    """Return a text member of a definition, or ""."""
    return jsonrpc.member(jsonrpc.Raw(tool.definition), name) or ""
