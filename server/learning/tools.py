"""Reads the tools of the catalog for learning: with texts that can be trusted, and by the names that people use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from foretool.storage.records import Tool, ToolId
from foretool.storage.stores import Store


def trusted_tools(store: Store, tools: Sequence[Tool]) -> list[Tool]:
    """The tools with the text that each had at first: a text that changed later may not enter training."""
    changed = store.catalog.changed_tools()
    found = []
    for tool in tools:
        if (tool.upstream, tool.name) in changed:
            first = store.catalog.versions(tool.upstream, tool.name)[0]
            tool = replace(tool, definition=first.definition, schema_hash=first.schema_hash, tokens=first.tokens)
        found.append(tool)
    return found


def names_of(tools: Sequence[Tool]) -> dict[str, ToolId]:
    """Every name by which a demonstration may call a tool: as exposed, `server/tool`, or its own if no other has it."""
    own = Counter(tool.name for tool in tools)
    found = {tool.name: tool.id for tool in tools if own[tool.name] == 1}
    found |= {f"{tool.upstream}/{tool.name}": tool.id for tool in tools}
    return found | {str(tool.id): tool.id for tool in tools}
