"""The definitions of our own two tools, `discover_tools` and `call_tool`, as clients list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foretool.server.catalog.names import CALL, DISCOVER
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import ToolId

MOST: Final = 50
"""Matches that one call of `discover_tools` may ask for."""
SUMMARY_CHARS: Final = 200
"""Characters of server names in the description of `discover_tools`."""

_META = {versions.ALWAYS_LOAD: True}

_CALL: Final = {
    "name": CALL,
    "description": "Calls any tool by name with its arguments, listed or found by discover_tools.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}, "handle": {"type": "string"}},
        "required": ["name"],
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    "_meta": _META,
}

_DISCOVER: Final = {
    "name": DISCOVER,
    "inputSchema": {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what to do; one need per line"},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "names whose schemas you want",
            },
            "sufficiency": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "how far listed tools suffice",
            },
            "limit": {"type": "integer", "maximum": MOST},
            "handle": {"type": "string", "description": "of your last answer"},
        },
    },
    "outputSchema": {
        "type": "object",
        "properties": {"confidence": {"type": "string"}, "matches": {"type": "array"}},
        "required": ["confidence", "matches"],
    },
    "annotations": {"readOnlyHint": True},
    "_meta": _META,
}


def definitions(counts: Mapping[str, int]) -> list[tuple[ToolId, Raw]]:
    """Return the definitions of our own tools. `counts`: tools by upstream; the description names the upstreams."""
    return [(CALL, jsonrpc.raw(_CALL)), (DISCOVER, jsonrpc.raw({**_DISCOVER, "description": _description(counts)}))]


def _description(counts: Mapping[str, int]) -> str:
    """Say how many tools and servers can be searched, and name the servers with the most tools."""
    shown = {name: count for name, count in counts.items() if count}
    text = (
        f"Finds tools for a task among {sum(shown.values())} of {len(shown)} servers; your list is partial. "
        "Answers carry schemas."
    )
    named = ""
    for place, name in enumerate(sorted(shown, key=lambda name: (-shown[name], name))):
        longer = f"{named}, {name}" if named else name
        if len(longer) > SUMMARY_CHARS:
            named += f" and {len(shown) - place} more"
            break
        named = longer
    return f"{text} Servers: {named}." if named else text
