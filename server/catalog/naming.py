"""What the tools of a catalog are called: names given for good first, then plain ones where nobody else wants them.

`names` has the rules for one set of tools; `Naming` applies them to all tools of a catalog. That takes 6 µs a tool, or
1 µs where every name was given before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property

from msgspec.structs import replace

from foretool.server.catalog import names
from foretool.server.catalog.names import Key, Resolver
from foretool.server.catalog.namespaces import Gone, Namespaces, say_refused
from foretool.server.catalog.overrides import Overrides
from foretool.server.catalog.snapshot import Snapshot
from foretool.server.config.servers import Server
from foretool.server.protocol.output_schemas import is_wide
from foretool.storage.records import Tool, ToolId, Usage


class Naming:
    """Gives the tools of a catalog their exposed names, by the config as it is at one time."""

    def __init__(
        self, entries: Sequence[Server], given: dict[ToolId, Key], prefixes: Mapping[str, str] | None,
        broken: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.given = given
        """The names given for good. A tool that comes back gets its old name."""
        self.namespaces = Namespaces(entries, prefixes, given, broken)
        self.overrides = Overrides(entries, self.namespaces)

    def assign(self, servers: Mapping[str, Sequence[Tool]]) -> dict[str, list[Tool]]:
        """Return the tools of all servers, which come in the order of the config, under their names."""
        plain = {
            (tool.upstream, tool.name): ToolId(self.overrides.plain_name(tool.upstream, tool.name))
            for tools in servers.values()
            for tool in tools
        }
        assigned = plain if self._have_all(plain) else self._choose(plain)
        return {name: [with_name(tool, assigned[name, tool.name]) for tool in tools] for name, tools in servers.items()}

    def _have_all(self, plain: Mapping[Key, ToolId]) -> bool:
        """Return whether each tool was given its plain name for good: then it keeps it, and nothing has to be
        chosen."""
        given = self.given
        return all(given.get(name) == key for key, name in plain.items()) and names.OWN.isdisjoint(plain.values())

    def _choose(self, tools: Iterable[Key]) -> dict[Key, ToolId]:
        listed = [(key, self.namespaces.prefix(key[0])) for key in tools]
        return names.assign_names(listed, self.given, self.overrides.names)

    def fix(self, tools: Iterable[Tool]) -> dict[ToolId, Key]:
        """Give these tools their present names for good; return the names that are new."""
        new: dict[ToolId, Key] = {}
        for tool in tools:
            key = (tool.upstream, tool.name)
            if self.given.get(tool.id) != key:
                self.given[tool.id] = new[tool.id] = key
        return new

    def read_lawful(self, server: str, tools: Sequence[Tool]) -> tuple[list[Tool], tuple[str, ...]]:
        """Return the tools whose names the server may have, and one line on the others, if there are any."""
        refused: dict[str, str] = {}
        for tool in tools:
            if (why := self.namespaces.refusal(server, tool.name)) is not None:
                refused[tool.name] = why
        return [tool for tool in tools if tool.name not in refused], say_refused(refused)


def with_name(tool: Tool, name: ToolId) -> Tool:
    return tool if tool.id == name else replace(tool, id=name)


def keep_known(old: Iterable[Tool], new: Iterable[Tool]) -> list[Tool]:
    """Return a new list of a server in which an unchanged definition stays byte for byte the same, and keeps its token
    count."""
    by_hash = {tool.schema_hash: tool for tool in old}
    return [_with_widest(by_hash.get(tool.schema_hash), tool) for tool in new]


def _with_widest(known: Tool | None, listed: Tool) -> Tool:
    """Return the known form of a tool, or the listed one if it is new or says more: servers list for legacy clients
    what is left of the definition for modern ones."""
    if known is None:
        return listed
    if is_wide(listed.definition) and not is_wide(known.definition):
        return replace(known, definition=listed.definition)
    return known


# What names mean


class NameMeanings:
    """Finds which tool each name means, for one version of the catalog."""

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
        """Return the tools that a misspelled name may mean, likeliest first, within the server that its prefix
        names."""
        owner = self.split(name)
        if owner is None:
            return self._resolver.near(name)
        own = {tool.id for tool in self._now.of(owner[0])}
        return [tool for tool in self._resolver.near(name, names.COMPARED) if tool in own][: names.OFFERED]

    def split(self, name: str) -> Key | None:
        """Return the server and the tool that a name was given for or is made of, also behind what clients put before
        it; None for a name that is of no server."""
        spellings = (name, *names.without_client_heads(name))
        keys = (self._given.get(ToolId(each)) or self._namespaces.split(each) for each in spellings)
        return next(filter(None, keys), None)

    def why_gone(self, name: str) -> Gone | None:
        """Return why a name means no tool although it is that of one: its server is not in use, or the config excludes
        the tool. None for a name that nobody ever had, or whose server merely does not list it."""
        if (key := self.split(name)) is not None:
            return self._namespaces.why_gone(*key)
        owners = {server for server, tool in self._known() if tool == name}
        return self._namespaces.why_gone(owners.pop(), name) if len(owners) == 1 else None

    def is_known(self, name: str, besides: str) -> bool:
        """Return whether a tool of another server than `besides` has or ever had this name, exposed or of its own."""
        given = self._given.get(ToolId(name))
        others = (tool for server, tool in self._known() if server != besides)
        return (given is not None and given[0] != besides) or name in others

    def name_now(self, tool: ToolId) -> ToolId:
        """Return the present name of a tool, given any name that it once had."""
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
