"""One version of the catalog: which tools exist and what they are called. A change makes another version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from foretool.server.catalog.names import without_client_heads
from foretool.server.protocol import apps
from foretool.server.trust.policy import Reach
from foretool.storage.records import Tool, ToolId


class ServerTools:
    """The tools of one server. Nothing in it changes."""

    def __init__(self, listed: list[Tool], shown: list[Tool] | None = None) -> None:
        self.listed = listed
        """As the server lists them, in its own order: approvals and the store keep these."""
        self.shown = listed if shown is None else shown
        """As clients see them: the user may describe a tool in other words."""

    @cached_property
    def digest(self) -> bytes:
        """A digest of the tools that does not depend on their order."""
        lines = sorted(f"{tool.id} {tool.schema_hash}\n" for tool in self.shown)
        return hashlib.sha256("".join(lines).encode()).digest()

    @cached_property
    def in_order(self) -> list[Tool]:
        return sorted(self.shown, key=lambda tool: tool.id)

    @cached_property
    def pages(self) -> frozenset[str]:
        """The URIs of the pages (MCP Apps) that the tools name."""
        return frozenset(page for tool in self.listed for page in apps.pages_of(tool.definition))

    @cached_property
    def has_pages(self) -> bool:
        """Whether the tools name a page, or some of them are for pages alone."""
        return bool(self.pages) or not all(apps.is_for_model(tool.definition) for tool in self.listed)

    def with_counts(self, tokens: Mapping[str, int]) -> ServerTools | None:
        """Return the same tools with counted tokens, by schema hash; None if none of them is counted there."""
        if not any(tool.schema_hash in tokens for tool in (*self.listed, *self.shown)):
            return None

        def count(tools: list[Tool]) -> list[Tool]:
            return [replace(tool, tokens=tokens.get(tool.schema_hash, tool.tokens)) for tool in tools]

        return ServerTools(count(self.listed), count(self.shown) if self.shown is not self.listed else None)


NO_TOOLS: Final = ServerTools([])


class Snapshot:
    """All tools in one version of the catalog. It never changes, so a reader that works in steps sees one state."""

    def __init__(
        self, version: int, servers: Mapping[str, ServerTools], tools: Mapping[ToolId, Tool] | None = None
    ) -> None:
        """`servers`: all of the config, in its order; `tools`: the same as clients see them, if somebody knows them."""
        self.version = version
        self.servers = servers
        self._tools = (
            tools if tools is not None else {tool.id: tool for each in servers.values() for tool in each.shown}
        )

    def __len__(self) -> int:
        return len(self._tools)

    def with_server(self, name: str, tools: ServerTools, *, version: int) -> Snapshot:
        """Return a version in which one server has these tools, whose names no other server has."""
        others = dict(self._tools)
        for tool in self.of(name):
            del others[tool.id]
        others.update((tool.id, tool) for tool in tools.shown)
        return Snapshot(version, {**self.servers, name: tools}, others)

    def server(self, name: str) -> ServerTools:
        """Return the tools of one server, without any for an unknown one."""
        return self.servers.get(name, NO_TOOLS)

    def of(self, server: str) -> list[Tool]:
        """Return the tools of one server as clients see them, in its own order."""
        return self.server(server).shown

    def get(self, tool: ToolId) -> Tool | None:
        return self._tools.get(tool)

    @cached_property
    def tools(self) -> list[Tool]:
        """All tools, ordered by exposed name."""
        return [self._tools[tool] for tool in sorted(self._tools)]

    def all(self) -> Iterable[Tool]:
        """Return all tools in no order."""
        return self._tools.values()

    @cached_property
    def counts(self) -> dict[str, int]:
        """By server, how many tools it has."""
        return {name: len(each.listed) for name, each in self.servers.items()}

    def count_tools(self, reach: Reach) -> dict[str, int]:
        """Return the servers of a profile in config order, each with the number of tools that may be found there."""
        return {
            name: sum(map(reach.finds, self.of(name))) if reach.hides_some(name) else count
            for name, count in self.counts.items()
            if reach.admits(name)
        }

    @cached_property
    def page_servers(self) -> frozenset[str]:
        return frozenset(name for name, each in self.servers.items() if each.has_pages)

    def servers_naming(self, page: str) -> list[str]:
        """Return the servers whose tools name a page, in config order."""
        return [name for name, each in self.servers.items() if page in each.pages]

    def tools_called(self, name: str) -> list[Tool]:
        """Return the tools that have this name on their own server, in the order of the servers. A client may have put
        something before the name."""
        meant = (name, *without_client_heads(name))
        return [tool for each in self.servers.values() for tool in each.shown if tool.name in meant]
