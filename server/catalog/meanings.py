"""What names mean that clients write and records hold: spelled otherwise, given earlier, or of a tool that is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property

from foretool.server.catalog import names
from foretool.server.catalog.names import Key, Resolver
from foretool.server.catalog.namespaces import Gone
from foretool.server.catalog.naming import Naming
from foretool.server.catalog.snapshot import Snapshot
from foretool.storage.records import ToolId, Usage


class NameMeanings:
    """The meanings of names in one version of the catalog."""

    def __init__(self, now: Snapshot, naming: Naming, excluded: Mapping[str, Set[str]]) -> None:
        """`excluded`: by server, the tools that it has and the config leaves out."""
        self.version = now.version
        self._now = now
        self._given = naming.given
        self._namespaces = naming.namespaces
        self._excluded = excluded

    @cached_property
    def _resolver(self) -> Resolver:
        """Built when it is first needed; most names are found without it."""
        exposed = {(name, tool.name): tool.id for name, each in self._now.servers.items() for tool in each.shown}
        spaces = self._namespaces
        return Resolver(exposed, self._given, self._known(), spaces.may_mean, spaces.split_loosely)

    def _known(self) -> Iterator[Key]:
        """Yield the tools that are there or ever were, without those that nobody was told of."""
        yield from self._given.values()
        yield from ((server, tool) for server, tools in self._excluded.items() for tool in tools)

    def resolve(self, name: str) -> ToolId | None:
        """Return the tool that a name means, spelled in any of the ways that `Resolver.resolve` knows."""
        return self._resolver.resolve(name)

    def near(self, name: str) -> list[ToolId]:
        """Return the tools that a wrong name may mean, likeliest first; those of one server if it has its prefix."""
        owner = self._namespaces.split(name)
        if owner is None:
            return self._resolver.near(name)
        own = {tool.id for tool in self._now.of(owner[0])}
        return [tool for tool in self._resolver.near(name, names.COMPARED) if tool in own][: names.OFFERED]

    def why_gone(self, name: str) -> Gone | None:
        """Return why a name means no tool although it is that of one: its server is not in use, or the config excludes
        the tool. None for a name that nobody ever had, or whose server merely does not list it."""
        for spelling in (name, *names.without_client_heads(name)):
            key = self._given.get(ToolId(spelling)) or self._namespaces.split(spelling)
            if key is not None:
                return self._namespaces.why_gone(*key)
        owners = {server for server, tool in self._known() if tool == name}
        return self._namespaces.why_gone(owners.pop(), name) if len(owners) == 1 else None

    def is_known(self, name: str, besides: str) -> bool:
        """Return whether a tool of another server than `besides` has or ever had this name, exposed or of its own."""
        given = self._given.get(ToolId(name))
        others = (tool for server, tool in self._known() if server != besides)
        return (given is not None and given[0] != besides) or name in others

    def name_now(self, tool: ToolId) -> ToolId:
        """Return the name that a tool has now, whatever it was called when this name was given to it."""
        if not self._is_old(tool):
            return tool
        server, own_name = self._given[tool]
        return next((each.id for each in self._now.of(server) if each.name == own_name), tool)

    def count_under_new_names(self, usages: Sequence[Usage]) -> list[Usage]:
        """Return how often each tool was used, under the name that it has now: one that the user renames keeps what is
        known of its use."""
        if not any(self._is_old(usage.tool) for usage in usages):
            return list(usages)
        sums: dict[ToolId, Usage] = {}
        for usage in usages:
            tool = self.name_now(usage.tool)
            old = sums.get(tool, Usage(tool, 0, 0, 0.0))
            last_at = max(old.last_at, usage.last_at)
            sums[tool] = Usage(tool, old.calls + usage.calls, old.misses + usage.misses, last_at)
        return sorted(sums.values(), key=lambda usage: (-usage.calls, -usage.last_at, usage.tool))

    def _is_old(self, name: ToolId) -> bool:
        """Return whether a name was given to a tool and is not in use."""
        return self._now.get(name) is None and name in self._given
