"""The catalog: every tool of every server, once, with the name that clients know it by.

It is filled from the store before any server has started, and corrected by what each server lists. `now` is its
present version, a value in which nothing changes (`snapshot`): what the servers list (`definitions`) under the names
that follow from the config and from names given earlier (`naming`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.definitions import DefinitionReader, ListedTools, ListProblems, shorten_problems
from foretool.server.catalog.names import Key
from foretool.server.catalog.namespaces import Namespaces, lawful
from foretool.server.catalog.naming import NameMeanings, Naming, keep_known
from foretool.server.catalog.overrides import Overrides
from foretool.server.catalog.snapshot import NO_TOOLS, ServerTools, Snapshot
from foretool.server.config.servers import Server, matches, program_of
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import TOOLS
from foretool.server.trust.policy import rule_names
from foretool.server.trust.text import clean
from foretool.storage.records import Tool, ToolId
from foretool.storage.steps import Steps, finish

if TYPE_CHECKING:
    from foretool.retrieval.rankers.servers import ServerNames

Gate = Callable[[Sequence[Tool], str], Steps[tuple[Sequence[Tool], str]]]
"""Takes the tools that a server lists and its `instructions`, and returns in steps what may be served of both."""

log = logging.getLogger("foretool.catalog")


def admit_all(tools: Sequence[Tool], text: str) -> Steps[tuple[Sequence[Tool], str]]:
    """Let every tool and text through: the gate where no approvals are asked for."""
    yield
    return tools, text


class ServerTexts:
    """The texts about each server: the description in the config, the `instructions` that it sent, and the words by
    which a task may name it."""

    def __init__(self) -> None:
        self._entries: Mapping[str, Server] = {}
        self._prefix_of: Callable[[str], str] = str
        self._instructions: dict[str, str] = {}
        self._names: ServerNames | None = None

    def configure(self, entries: Mapping[str, Server], prefix_of: Callable[[str], str]) -> None:
        """Follow the config; what servers said themselves is kept."""
        self._entries, self._prefix_of, self._names = entries, prefix_of, None

    def take(self, server: str, instructions: str) -> None:
        """Take the `instructions` that a server sent, in place of those before."""
        self._instructions[server] = instructions

    def about(self, server: str) -> str:
        """Return the description of a server in the config, else the `instructions` that it sent itself."""
        known = self._entries.get(server)
        return (known.entry.description if known else "") or self.instructions(server)

    def instructions(self, server: str) -> str:
        """Return the `instructions` that a server sent at its last handshake, whatever the config says about it."""
        return self._instructions.get(server, "")

    @property
    def names(self) -> ServerNames:
        """The words by which a task may name each server; read from the entries when a search first needs them."""
        if self._names is None:
            from foretool.server.catalog.server_words import read_server_names  # word lists, which no list needs

            self._names = read_server_names(list(self._entries.values()), self._prefix_of)
        return self._names


class Catalog:
    """Knows which tools exist, what they are called, and which servers' tools have changed since a version.

    >>> catalog = Catalog(entries, given=names_given_earlier)
    >>> catalog.load("git", tools_in_the_store)
    >>> catalog.settle()
    >>> catalog.find("git__log")
    """

    def __init__(
        self,
        entries: Sequence[Server],
        given: Mapping[ToolId, Key] | None = None,
        on_fixed: Callable[[Mapping[ToolId, Key]], None] = lambda names: None,
        prefixes: Mapping[str, str] | None = None,
        broken: Collection[str] = (),
    ) -> None:
        """`entries` come in the order of the config, which decides who gets a name that several tools want; `given`:
        names given for good by earlier processes; `on_fixed` hears the names that `fix_names` adds; `prefixes`: of all
        servers in the config, also of disabled and broken ones; `broken`: those whose entries cannot be used."""
        self.texts = ServerTexts()
        self._read_config(entries, lawful(given or {}), prefixes, broken)
        self.now = Snapshot(0, dict.fromkeys(self._entries, NO_TOOLS))
        """The tools in the present version."""
        self._on_fixed = on_fixed
        self._fixed = -1
        """The version whose names are all fixed."""
        self._changed_at: dict[str, int] = {}
        """By server, the version with which its tools or words changed last, oldest change first."""
        self._loaded: dict[str, list[Tool]] = {}
        """By server, the tools that `settle` has still to name."""
        self._excluded: dict[str, frozenset[str]] = {}
        """By server, the tools that it has and the config leaves out."""
        self._problems = ListProblems()
        self._meanings: NameMeanings | None = None

    def _read_config(
        self, entries: Sequence[Server], given: dict[ToolId, Key], prefixes: Mapping[str, str] | None,
        broken: Collection[str],
    ) -> None:  # fmt: skip
        self._entries = {entry.name: entry for entry in entries}
        self.reader = DefinitionReader(entries)
        self._broken = broken
        self._naming = Naming(entries, given, prefixes, broken)
        self.texts.configure(self._entries, self._naming.namespaces.prefix)

    # -- the tools

    def __len__(self) -> int:
        return len(self.now)

    @property
    def version(self) -> int:
        """A number that goes up with every change of the catalog."""
        return self.now.version

    def tools(self) -> list[Tool]:
        """Return all tools, ordered by exposed name."""
        return self.now.tools

    def upstreams(self) -> dict[str, int]:
        """Return the servers in config order, each with the number of its tools."""
        return self.now.counts

    def programs(self) -> dict[str, Hashable]:
        """Return what each server runs, which is the same for two accounts of one service."""
        return {name: program_of(entry) for name, entry in self._entries.items()}

    def of(self, upstream: str) -> list[Tool]:
        return self.now.of(upstream)

    def listed(self, upstream: str) -> list[Tool]:
        """Return the tools of one server as it sent them, which is what approvals and the store keep."""
        return self.now.server(upstream).listed

    def get(self, tool: ToolId) -> Tool | None:
        return self.now.get(tool)

    def changed_since(self, version: int) -> list[str]:
        """Return the servers whose tools or description changed after `version`, oldest change first; removed servers
        are among them."""
        return [name for name, changed_at in self._changed_at.items() if changed_at > version]

    def pins(self, patterns: Sequence[str] = ()) -> list[ToolId]:
        """Return the tools that are always listed: those that match their server's own `pin` by the server's name for
        them, and those that match `patterns` by exposed name."""
        if not patterns and not any(each.entry.pin for each in self._entries.values()):
            return []
        return [tool.id for tool in self.tools() if self.is_pinned(tool, patterns)]

    def is_pinned(self, tool: Tool, patterns: Sequence[str] = ()) -> bool:
        own = self._entries[tool.upstream].entry.pin
        return matches(tool.name, own) or self.is_meant(tool, patterns)

    def is_meant(self, tool: Tool, patterns: Collection[str]) -> bool:
        """Return whether patterns of exposed names mean a tool, by one of the names for rules or by one that it had
        before: an alias or a prefix given later takes no pin away."""
        if not patterns:
            return False
        names = rule_names(tool, self._naming.namespaces.prefix(tool.upstream))
        key = (tool.upstream, tool.name)
        return any(matches(name, patterns) for name in names) or any(self.given_to(each) == key for each in patterns)

    # -- their names

    def given_to(self, name: str) -> Key | None:
        """Return the server and the own name of the tool that was ever given a name."""
        return self._naming.given.get(ToolId(name))

    @property
    def namespaces(self) -> Namespaces:
        """Who owns which prefix."""
        return self._naming.namespaces

    @property
    def overrides(self) -> Overrides:
        """The names and texts that the user gives tools in place of the servers' own."""
        return self._naming.overrides

    @property
    def meanings(self) -> NameMeanings:
        """What names mean that no tool has as it is written."""
        if self._meanings is None or self._meanings.version != self.version:
            self._meanings = NameMeanings(self.now, self._naming, self._excluded)
        return self._meanings

    def find(self, name: str) -> Tool | None:
        """Return the tool that a name means, spelled in any of the ways that `Resolver.resolve` knows."""
        if (tool := self.get(ToolId(name))) is not None:
            return tool
        resolved = self.meanings.resolve(name)
        return self.get(resolved) if resolved is not None else None

    def fix_names(self) -> None:
        """Give every tool its present name for good. Call it before a client is told of tools.

        Until then the order of the config decides which tool gets a name that several want, whoever listed first.
        """
        if self._fixed == self.version:  # nearly always, and each call asks
            return
        changed = set(self.changed_since(self._fixed))
        for name in [name for name in self._entries if name in changed]:
            if new := self._naming.fix(self.of(name)):
                self._on_fixed(new)
        self._fixed = self.version

    # -- what is wrong with lists

    def problems_of(self, upstream: str) -> tuple[str, ...]:
        """Return which members of a server's lists were dropped and why, and what is wrong with its prefix and
        `tools`."""
        said = shorten_problems((*self.namespaces.problems.get(upstream, ()), *self._problems.of(upstream)))
        excluded = self._excluded.get(upstream, ())
        return (*said, *self.overrides.problems(upstream, self.listed(upstream), excluded))

    def note_problems(self, upstream: str, list_name: str, problems: Sequence[str]) -> None:
        """Record what is wrong with one of a server's lists other than that of its tools."""
        if self._problems.note(upstream, list_name, problems):
            _log_problems(upstream, problems)

    # -- changes

    def configure(
        self, entries: Sequence[Server], prefixes: Mapping[str, str] | None = None, broken: Collection[str] = ()
    ) -> None:
        """Follow a changed config and forget the tools of removed servers."""
        given, rewritten = self._naming.given, {name: self.overrides.of(name) for name in self._entries}
        self._read_config(entries, given, prefixes, broken)
        gone = [name for name in self.now.servers if name not in self._entries]
        self._problems.forget(gone)
        self._excluded = {name: tools for name, tools in self._excluded.items() if name in self._entries}
        kept = {
            name: self._naming.read_lawful(name, each.listed)[0]
            for name, each in self.now.servers.items()
            if name in self._entries
        }
        self._name_all(kept)
        self._mark_changed([*gone, *(name for name in kept if self.overrides.of(name) != rewritten.get(name, {}))])

    def follow_names(self, given: Mapping[ToolId, Key], prefixes: Mapping[str, str] | None = None) -> None:
        """Take names that a store gives for good, which beat the ones given while it could not be read."""
        self._naming.given = lawful({**self._naming.given, **given})
        self.configure(list(self._entries.values()), prefixes, self._broken)

    def load(self, upstream: str, tools: Sequence[Tool], text: str = "") -> None:
        """Record what the store remembers of one server. Call `settle` after the last server."""
        stored = self.reader.read_stored(upstream, tools)
        self._loaded[upstream], problems = self._naming.read_lawful(upstream, stored)
        self._problems.note(upstream, TOOLS.noun, problems)
        self.texts.take(upstream, clean(text))

    def settle(self) -> None:
        """Name all tools that were loaded."""
        loaded, self._loaded = self._loaded, {}
        self._name_all({**{name: each.listed for name, each in self.now.servers.items()}, **loaded})
        self._mark_changed(loaded)

    def replace(self, upstream: str, definitions: Sequence[Raw], text: str = "", cut: str = "") -> bool:
        """Record a server's list in one go, as it is (`replace_in_steps`)."""
        return finish(self.replace_in_steps(upstream, definitions, text, admit_all, cut))

    def replace_in_steps(
        self, upstream: str, definitions: Sequence[Raw], text: str, gate: Gate, cut: str = ""
    ) -> Steps[bool]:
        """Record what `gate` lets through of a server's list; returns whether a tool came, went or changed.

        Invisible characters are removed. Bad definitions are dropped one by one and explained in `problems`. Over HTTP,
        a definition with a wrong `x-mcp-header` annotation is bad, too (specification: tools). `cut`: what was left out
        of the list before it came here.

        The list before stays until the last step, which puts the whole new one in its place. A config that changes
        meanwhile makes it begin again.
        """
        while True:
            naming, reader = self._naming, self.reader
            known = {tool.name: tool.id for tool in self.of(upstream)}
            listed = yield from reader.read(upstream, definitions, known, naming.overrides.plain_name)
            tools, refused = naming.read_lawful(upstream, list(listed.tools.values()))
            said = reader.hide_credentials(clean(text).encode(errors="replace")).decode()
            admitted, said = yield from gate(tools, said)
            if self._naming is naming:
                break
        included = [tool for tool in admitted if reader.includes(upstream, tool.name)]
        self._note_listed(upstream, listed, (*([cut] if cut else []), *listed.problems, *refused))
        return self._take_over(upstream, keep_known(self.listed(upstream), included), said)

    def _note_listed(self, upstream: str, listed: ListedTools, problems: Sequence[str]) -> None:
        if listed.excluded != self._excluded.get(upstream, frozenset()):
            self._excluded[upstream] = frozenset(listed.excluded)
            self._meanings = None  # their own names are not free
        self._problems.note(upstream, TOOLS.noun, problems)
        _log_problems(upstream, (*self.namespaces.problems.get(upstream, ()), *problems))

    def _take_over(self, upstream: str, new: list[Tool], text: str) -> bool:
        """Serve a new list of a server from now on; returns whether a tool came, went or changed."""
        old = self.listed(upstream)
        has_changed = {tool.schema_hash for tool in old} != {tool.schema_hash for tool in new}
        if has_changed or new != old or text != self.texts.instructions(upstream):
            self.texts.take(upstream, text)
            self._name_all({**{name: each.listed for name, each in self.now.servers.items()}, upstream: new})
            self._mark_changed([upstream])
        return has_changed

    def _name_all(self, listed: Mapping[str, list[Tool]]) -> None:
        """Serve these lists from now on, each tool under the name that it gets among all of them."""
        ordered = {name: listed.get(name, []) for name in self._entries}
        named = self._naming.assign(ordered)
        servers = {name: self._show(name, tools) for name, tools in named.items()}
        self.now = Snapshot(self.version + 1, servers)
        names = {name: [tool.id for tool in tools] for name, tools in ordered.items()}
        self._mark_changed(name for name, tools in named.items() if [tool.id for tool in tools] != names[name])

    def _show(self, upstream: str, tools: list[Tool]) -> ServerTools:
        """Return the tools of a server with what the user writes about them; the same object where nothing changes."""
        known = self.now.server(upstream)
        is_rewritten = bool(self.overrides.of(upstream)) or known.shown is not known.listed
        if not is_rewritten and len(tools) == len(known.listed) and all(map(is_, tools, known.listed)):
            return known
        return ServerTools(tools, list(map(self.overrides.apply, tools)) if self.overrides.of(upstream) else None)

    def _mark_changed(self, upstreams: Iterable[str]) -> None:
        for upstream in upstreams:
            self._changed_at.pop(upstream, None)
            self._changed_at[upstream] = self.version

    # -- tokens

    def tokens(self, tool: ToolId) -> int:
        """Return the tokens of a tool's definition, estimated until they are counted."""
        known = self.get(tool)
        if known is None:
            return 0
        return known.tokens if known.tokens is not None else _estimate(known.definition)

    def find_uncounted(self) -> Iterator[Tool]:
        """Yield the tools whose tokens are estimated."""
        return (tool for tool in self.now.all() if tool.tokens is None)

    def set_token_counts(self, tokens: Mapping[str, int]) -> None:
        """Replace estimates by counted tokens; `tokens` is keyed by schema hash."""
        for upstream in list(self.now.servers):
            if (counted := self.now.server(upstream).with_counts(tokens)) is not None:
                self.now = self.now.with_server(upstream, counted, version=self.version)


@lru_cache(maxsize=10_000)
def _estimate(definition: bytes) -> int:
    return estimate(definition.decode())


def _log_problems(upstream: str, problems: Sequence[str]) -> None:
    for problem in shorten_problems(problems):
        log.warning("upstream %r: %s", upstream, problem)
