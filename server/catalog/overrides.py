"""What the user writes in place of a server's words: names, titles and descriptions of single tools.

The catalog keeps tools as their servers list them, and shows them as this file returns them. So approvals compare what
a server says, and clients, searches and hints read what the user wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from foretool.server.catalog.names import SEPARATOR, Key, plain_name
from foretool.server.catalog.namespaces import Namespaces
from foretool.server.config.servers import Server
from foretool.server.config.settings import ToolEntry
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.output_schemas import without_era
from foretool.server.trust.approvals import hash_value
from foretool.server.trust.text import clean, one_line
from foretool.storage.records import Tool

_OTHER_NAME: Final = "choose another name"
_SHOWN: Final = 60
"""Characters of a name in a message."""


class Overrides:
    """The names and texts that the user gives tools (`tools` in the servers' entries)."""

    def __init__(self, entries: Sequence[Server], namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._entries: dict[str, Mapping[str, ToolEntry]] = {
            each.name: each.entry.tools for each in entries if each.entry.tools
        }

    @cached_property
    def names(self) -> dict[Key, str]:
        """The user's name of each tool that has one, except names that would look like those of another server."""
        return {
            (upstream, tool): entry.name
            for upstream, tools in self._entries.items()
            for tool, entry in tools.items()
            if entry.name and self._namespaces.refusal(upstream, entry.name) is None
        }

    def of(self, upstream: str) -> Mapping[str, ToolEntry]:
        """Return what the user wrote about tools of a server, by the server's own names."""
        return self._entries.get(upstream, {})

    def plain_name(self, upstream: str, tool: str) -> str:
        """Return the exposed name that a tool gets unless another tool has it."""
        return plain_name(self._namespaces.prefix(upstream), self.names.get((upstream, tool), tool))

    def exposed(self, upstream: str, name: str) -> str:
        """Return the exposed name that a tool of this server gets if the user names it `name`."""
        return plain_name(self._namespaces.prefix(upstream), name)

    def renames(self, upstream: str) -> bool:
        """Return whether a tool of this server has a name of the user's."""
        return any(each.name for each in self.of(upstream).values())

    def apply(self, tool: Tool) -> Tool:
        """Return a tool with the user's texts in place of its server's. Its hash is that of the result, and its tokens
        are not counted yet."""
        entry = self.of(tool.upstream).get(tool.name)
        if entry is None or not entry.description:
            return tool
        members = jsonrpc.fields(tool.definition)
        members["description"] = jsonrpc.raw(clean(entry.description))
        definition = bytes(jsonrpc.raw(members))
        return replace(tool, definition=definition, schema_hash=hash_value(without_era(definition)), tokens=None)

    def problems(self, upstream: str, tools: Sequence[Tool], excluded: Collection[str]) -> tuple[str, ...]:
        """Return one line on each entry of `tools` that has no effect. `tools`: those that exist, with their names;
        `excluded`: those that the config leaves out."""
        if not self.of(upstream):
            return ()
        found: list[str] = []
        there = {tool.name: tool for tool in tools}
        for own, entry in self.of(upstream).items():
            shown = one_line(own, _SHOWN)
            if own not in there:
                if there and own not in excluded:
                    found.append(f'"tools": it has no tool {shown!r}; `foretool tools` shows the names')
            elif entry.name and there[own].id != self._wanted(upstream, entry.name):
                why = self._why_not(upstream, entry.name)
                found.append(f'"tools": {shown!r} is shown as {there[own].id}: {why}; {_OTHER_NAME}')
        return tuple(found)

    def _wanted(self, upstream: str, name: str) -> str:
        prefix = self._namespaces.prefix(upstream)
        return f"{prefix}{SEPARATOR}{name}" if prefix else name

    def _why_not(self, upstream: str, name: str) -> str:
        """Return why a tool did not get the name that the user gave it."""
        if refusal := self._namespaces.refusal(upstream, name):
            return f"{name!r} cannot be its name, because {refusal}"
        if plain_name(self._namespaces.prefix(upstream), name) != self._wanted(upstream, name):
            return f"{name!r} is too long or has characters that clients refuse"
        return f"the name {name!r} belongs to another tool"
