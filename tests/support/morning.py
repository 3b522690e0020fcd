"""What a client asks in a morning, of one server: a list, a search, calls by name and through the bridge, a name that
nobody has. Tests let something go wrong in it, at each place in turn."""

from __future__ import annotations

from typing import Any

from fakes import FakeUpstream, tool


def calc() -> FakeUpstream:
    return FakeUpstream("calc", [tool("add", "Adds"), tool("sub", "Subtracts")], entry={"pin": ["add"]})


MORNING: list[tuple[str, Any]] = [
    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    ("tools/list", {}),
    ("tools/call", {"name": "calc__add", "arguments": {"n": 1}}),
    ("tools/call", {"name": "discover_tools", "arguments": {"task": "subtract"}}),
    ("tools/call", {"name": "calc__sub", "arguments": {"n": 2}}),
    ("tools/call", {"name": "call_tool_write", "arguments": {"name": "calc__sub", "arguments": {"n": 3}}}),
    ("tools/call", {"name": "no__such", "arguments": {}}),
    ("tools/list", {}),
    ("tools/call", {"name": "calc__add", "arguments": {"n": 4}}),
]
