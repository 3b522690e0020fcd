"""The catalog: every tool of every upstream, once, with the name that clients know it by.

It is filled from the store before any upstream has started, and corrected by what each upstream lists.

`Catalog` is over 300 lines: tools, their names and the version that both move change together.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from foretool.retrieval.tokens import estimate
from foretool.server.catalog import names
from foretool.server.catalog.names import Key, Resolver
from foretool.server.catalog.namespaces import Gone, Namespaces, lawful, say_refused
from foretool.server.catalog.overrides import Overrides
from foretool.server.config.servers import Server, matches
from foretool.server.config.variables import Secrets
from foretool.server.protocol import apps, jsonrpc
from foretool.server.protocol.headers import annotated_schema, schema_problem
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.output_schemas import is_wide, narrow, without_era
from foretool.server.trust.approvals import hash_value
from foretool.server.trust.links import clean_member
from foretool.server.trust.policy import Reach
from foretool.server.trust.text import clean, is_clean
from foretool.storage.records import Era, Tool, ToolId, Usage
from foretool.storage.steps import Steps, finish

if TYPE_CHECKING:
    from foretool.retrieval.rankers.servers import ServerNames

MAX_DEFINITION: Final = 256 * 1024
"""Bytes. A larger tool definition is dropped, because no client could use it."""

Gate = Callable[[Sequence[Tool], str], tuple[Sequence[Tool], str]]
"""Takes the tools that an upstream lists and its `instructions`, and returns what may be served of both."""
Names = Mapping[ToolId, Key]
"""Names given for good."""
GateInSteps = Callable[[Sequence[Tool], str], Steps[tuple[Sequence[Tool], str]]]
"""The same in steps."""

MOST_PROBLEMS, MOST_PROBLEM = 20, 500
"""How many problems of one server are kept, and the characters of each: they quote what it wrote."""

log = logging.getLogger("foretool.catalog")


class _Listed(Struct):
    """What was read of an upstream's list."""

    tools: dict[str, Tool] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    known_as: dict[bytes, Tool] = field(default_factory=dict)


class _Prepared(Struct):
    """What is known of a list before it takes the place of another one."""

    old: list[Tool]
    """What is served until then."""
    before: dict[str, Tool] = field(default_factory=dict)
    """These tools by their plain names."""
    kept: dict[str, Tool] = field(default_factory=dict)
    """The same by their hashes."""
    served: list[Tool] = field(default_factory=list)
    """What is to be served."""
    hashes: set[str] = field(default_factory=set)
    named: dict[str, Tool] = field(default_factory=dict)
    """The tools to be served by their plain names, each under that name."""
    bare: list[str] = field(default_factory=list)
    """The same names without the prefix of their server."""
    can_be_named: bool = False
    """Whether these tools can have their plain names while no other upstream's are looked at."""
    names_seen: tuple[int, int] = (-1, -1)
    """The names in use when that was found out."""


class _App(Struct, frozen=True):
    """What the tools of one upstream say of its pages (MCP Apps)."""

    tools: list[Tool]
    """The tools that it was read of."""
    pages: frozenset[str]
    """The URIs of the pages that they name."""
    has_pages: bool
    """They name a page, or some of them are for pages alone."""


class Catalog:
    """Knows which tools exist, what they are called, and which upstreams' tools have changed since a version."""

    def __init__(
        self,
        entries: Sequence[Server],
        given: Names | None = None,
        on_fixed: Callable[[Names], None] = lambda names: None,
        prefixes: Mapping[str, str] | None = None,
    ) -> None:
        """`entries` come in the order of the config, which decides who gets a name that several tools want; `given`:
        names given for good by earlier processes; `on_fixed` hears the names that `fix_names` adds; `prefixes`: of all
        servers in the config, also of disabled and broken ones."""
        self.version = 0
        """Goes up with every change."""
        self.problems: dict[str, tuple[str, ...]] = {}
        """By upstream, which tools were dropped and why, and what is wrong with its prefix and its `tools`."""
        self._read_problems: dict[str, tuple[str, ...]] = {}
        """`problems` without what is wrong with `tools`, which is known once the tools are named."""
        self._list_problems: dict[str, dict[str, Sequence[str]]] = {}
        """What is wrong with each list of an upstream, by what it holds."""
        self._entries = {entry.name: entry for entry in entries}
        self._secrets = _secrets_of(entries)
        self._server_names: ServerNames | None = None
        """Read from the entries when a search first needs them."""
        self._texts: dict[str, str] = {}
        self._given = lawful(given or {})
        """The names given for good. A tool that comes back gets its old name."""
        self.namespaces = Namespaces(entries, prefixes, self._given)
        """Who owns which prefix."""
        self.overrides = Overrides(entries, self.namespaces)
        self._excluded: dict[str, frozenset[str]] = {}
        """By upstream, the tools that it has and the config leaves out."""
        self._known_as: dict[str, dict[bytes, Tool]] = {}
        """By upstream and digest of a definition as it is written, the tools of the last list as they were read."""
        self._plain: Counter[str] = Counter()
        """By plain name, how many tools want it."""
        self._are_plain = True
        """Each tool has its plain name, and none could have another one if some other tool were not there."""
        self._on_fixed = on_fixed
        self._names_given = 0
        """How often names were given for good."""
        self._fixed = -1
        """The version whose names are all fixed."""
        self._tools: dict[ToolId, Tool] = {}
        """The tools as clients see them."""
        self._sorted: list[ToolId] = []
        """Their names in order, as they were in the version `_sorted_at`."""
        self._sorted_at = -1
        self._by_upstream: dict[str, list[Tool]] = {}
        """The tools as their upstreams list them."""
        self._shown: dict[str, list[Tool]] = {}
        """By upstream whose tools the user describes himself, its tools as clients see them."""
        self._digests: dict[str, tuple[list[Tool], bytes]] = {}
        self._apps: dict[str, _App] = {}
        """By upstream: what its tools say of pages."""
        self._page_servers: tuple[int, frozenset[str]] = (-1, frozenset())
        """The version of the catalog, and the upstreams that have pages in it."""
        self._ordered: dict[str, tuple[list[Tool], list[Tool]]] = {}
        """By upstream: its tools, and what was made of them."""
        self._changed_at: dict[str, int] = {}
        """By upstream, the version with which its tools or words changed last, oldest change first."""
        self._loaded: list[str] = []
        """Upstreams whose tools `settle` has still to name."""
        self._resolver: Resolver | None = None
        """Built when it is first needed; most names are found without it."""
        self._estimates: dict[str, int] = {}
        """By schema hash, the estimated tokens of definitions that are not counted yet."""
        self._note_prefixes()

    def __len__(self) -> int:
        return len(self._tools)

    def fix_names(self) -> None:
        """Give every tool its present name for good. Call it before a client is told of tools.

        Until then the order of the config decides which tool gets a name that several want, whoever listed first.
        """
        if self._fixed != self.version:
            finish(self.fix_names_in_steps())

    def fix_names_in_steps(self) -> Steps[None]:
        """Do what `fix_names` does, for one upstream after the other. What changes meanwhile is left to the next
        call."""
        if self._fixed == self.version:
            return
        version, changed = self.version, set(self.changed_since(self._fixed))
        for name in [name for name in self._entries if name in changed]:
            yield
            given, new = self._given, dict[ToolId, Key]()
            for tool in self.of(name):
                key = (tool.upstream, tool.name)
                if given.get(tool.id) != key:
                    given[tool.id] = new[tool.id] = key
            if new:
                self._names_given += 1
                self._on_fixed(new)
        self._fixed = max(self._fixed, version)

    def changed_since(self, version: int) -> list[str]:
        """Return the upstreams whose tools or description changed after `version`, oldest change first; removed
        upstreams are among them."""
        return [name for name, changed_at in self._changed_at.items() if changed_at > version]

    def tools(self) -> list[Tool]:
        """Return all tools, ordered by exposed name."""
        if self._sorted_at != self.version:
            self._sorted, self._sorted_at = sorted(self._tools), self.version
        return [self._tools[tool] for tool in self._sorted]

    def upstreams(self) -> dict[str, int]:
        """Return the upstreams in config order, each with the number of its tools."""
        return {name: self.count(name) for name in self._entries}

    def count(self, upstream: str) -> int:
        """Return the number of tools of one upstream."""
        return len(self._by_upstream.get(upstream, ()))

    def count_tools(self, reach: Reach) -> dict[str, int]:
        """Return the upstreams of a profile in config order, each with the number of tools that may be found there."""
        return {
            name: sum(map(reach.finds, self.of(name))) if reach.hides_some(name) else count
            for name, count in self.upstreams().items()
            if reach.admits(name)
        }

    def page_servers(self) -> frozenset[str]:
        """Return the upstreams that have pages (MCP Apps)."""
        if self._page_servers[0] != self.version:
            found = (name for name in self._entries if self._app(name).has_pages)
            self._page_servers = (self.version, frozenset(found))
        return self._page_servers[1]

    def naming(self, page: str) -> list[str]:
        """Return the upstreams whose tools name a page, in config order."""
        return [name for name in self._entries if page in self._app(name).pages]

    def _app(self, upstream: str) -> _App:
        """Return what the tools of one upstream say of pages; found once while none of them changes."""
        tools = self.listed(upstream)
        known = self._apps.get(upstream)
        if known is None or known.tools is not tools:
            pages = frozenset(page for tool in tools for page in apps.pages_of(tool.definition))
            has_pages = bool(pages) or not all(apps.is_for_model(tool.definition) for tool in tools)
            known = self._apps[upstream] = _App(tools, pages, has_pages)
        return known

    def of(self, upstream: str) -> list[Tool]:
        """Return the tools of one upstream as clients see them, in its own order."""
        listed = self.listed(upstream)
        return self._shown.get(upstream) or listed

    def digest(self, upstream: str) -> bytes:
        """Return a digest of the tools of one upstream, whatever their order; made once while none of them changes."""
        tools = self.of(upstream)
        known = self._digests.get(upstream)
        if known is None or known[0] is not tools:
            lines = sorted(f"{tool.id} {tool.schema_hash}\n" for tool in tools)
            known = self._digests[upstream] = (tools, hashlib.sha256("".join(lines).encode()).digest())
        return known[1]

    def in_order(self, upstream: str) -> list[Tool]:
        """Return the tools of one upstream by exposed name; sorted once while none of them changes."""
        tools = self.of(upstream)
        known = self._ordered.get(upstream)
        if known is None or known[0] is not tools:
            known = self._ordered[upstream] = (tools, sorted(tools, key=lambda tool: tool.id))
        return known[1]

    def listed(self, upstream: str) -> list[Tool]:
        """Return the tools of one upstream as it lists them: approvals and the store keep these."""
        return self._by_upstream.get(upstream, [])

    def get(self, tool: ToolId) -> Tool | None:
        """Return the tool with this exposed name."""
        return self._tools.get(tool)

    def find(self, name: str) -> Tool | None:
        """Return the tool that a name means, spelled in any of the ways that `Resolver.resolve` knows."""
        tool = self.get(ToolId(name))
        if tool is None and (resolved := self._open_resolver().resolve(name)) is not None:
            tool = self._tools.get(resolved)
        return tool

    def why_gone(self, name: str) -> Gone | None:
        """Return why a name means no tool although it is that of one: its server is not in use, or the config excludes
        the tool. None for a name that nobody ever had, or whose server merely does not list it."""
        for each in (name, *names.without_client_heads(name)):
            key = self._given.get(ToolId(each)) or self.namespaces.split(each)
            if key is not None:
                return self.namespaces.why_gone(*key)
        owners = {upstream for upstream, tool in self._known() if tool == name}
        return self.namespaces.why_gone(owners.pop(), name) if len(owners) == 1 else None

    def is_known(self, name: str, besides: str) -> bool:
        """Tell whether a tool of another upstream than `besides` has or ever had this name, exposed or of its own."""
        given = self._given.get(ToolId(name))
        others = (tool for upstream, tool in self._known() if upstream != besides)
        return (given is not None and given[0] != besides) or name in others

    def _known(self) -> Iterator[Key]:
        """Yield the tools that are there or ever were, without those that nobody was told of."""
        yield from self._given.values()
        yield from ((upstream, tool) for upstream, tools in self._excluded.items() for tool in tools)

    def near(self, name: str) -> list[ToolId]:
        """Return the tools that a wrong name may mean, likeliest first; those of one upstream if it has its prefix."""
        found = self.namespaces.split(name)
        if found is None:
            return self._open_resolver().near(name)
        own = {tool.id for tool in self.of(found[0])}
        return [tool for tool in self._open_resolver().near(name, names.COMPARED) if tool in own][: names.OFFERED]

    def tools_called(self, name: str) -> list[Tool]:
        """Return the tools whose own name is this, in the order of their servers; clients may have put something before
        it."""
        meant = (name, *names.without_client_heads(name))
        return [tool for upstream in self._entries for tool in self.of(upstream) if tool.name in meant]

    def _open_resolver(self) -> Resolver:
        if self._resolver is None:
            found = {(name, tool.name): tool.id for name in self._entries for tool in self.of(name)}
            spaces = self.namespaces
            self._resolver = Resolver(found, self._given, self._known(), spaces.may_mean, spaces.split_loosely)
        return self._resolver

    def server_text(self, upstream: str) -> str:
        """Return the description of an upstream in the config, else the `instructions` that it sent itself."""
        server = self._entries.get(upstream)
        return (server.entry.description if server else "") or self._texts.get(upstream, "")

    @property
    def server_names(self) -> ServerNames:
        """The words by which a task may name each server."""
        if self._server_names is None:
            from foretool.server.catalog.server_words import read_server_names  # word lists, which no list needs

            self._server_names = read_server_names(list(self._entries.values()), self.namespaces.prefix)
        return self._server_names

    def instructions(self, upstream: str) -> str:
        """Return the `instructions` that an upstream sent at its last handshake, whatever the config says about it."""
        return self._texts.get(upstream, "")

    def configure(self, entries: Sequence[Server], prefixes: Mapping[str, str] | None = None) -> None:
        """Follow a changed config and forget the tools of removed upstreams."""
        before = {name: self.overrides.of(name) for name in self._entries}
        self._known_as.clear()
        self._entries = {entry.name: entry for entry in entries}
        self._secrets = _secrets_of(entries)
        self._server_names = None
        self.namespaces = Namespaces(entries, prefixes, self._given)
        self.overrides = Overrides(entries, self.namespaces)
        gone = set(self._by_upstream) - set(self._entries)
        self._list_problems = {name: each for name, each in self._list_problems.items() if name in self._entries}
        for name in gone:
            self._by_upstream.pop(name)
            self.problems.pop(name, None)
            self._read_problems.pop(name, None)
            self._excluded.pop(name, None)
            self._digests.pop(name, None)
            self._apps.pop(name, None)
            self._ordered.pop(name, None)
        for name, tools in self._by_upstream.items():
            self._by_upstream[name], _ = self._lawful_tools(name, tools)
        self._note_prefixes()
        self._name_all()
        rewritten = [name for name in self._by_upstream if self.overrides.of(name) != before.get(name, {})]
        self._mark_changed([*gone, *rewritten])

    def load(self, upstream: str, tools: Sequence[Tool], text: str = "") -> None:
        """Take in what the store remembers of one upstream. Call `settle` after the last upstream."""
        # Earlier versions kept invisible characters.
        cleaned = (_clean_tool(tool) for tool in tools if self._includes(upstream, tool.name))
        found, problems = self._lawful_tools(upstream, [tool for tool in cleaned if tool is not None])
        self._by_upstream[upstream] = found
        self._note_problems(upstream, problems)
        self._texts[upstream] = clean(text)
        self._loaded.append(upstream)

    def settle(self) -> None:
        """Name all tools that were loaded."""
        self._name_all()
        self._mark_changed(self._loaded)
        self._loaded.clear()

    def replace(
        self, upstream: str, definitions: Sequence[Raw], text: str = "", gate: Gate = lambda *listed: listed,
        cut: str = "",
    ) -> bool:  # fmt: skip
        """Do what `replace_in_steps` does, in one go."""

        def gate_in_steps(tools: Sequence[Tool], said: str) -> Steps[tuple[Sequence[Tool], str]]:
            yield
            return gate(tools, said)

        return finish(self.replace_in_steps(upstream, definitions, text, gate_in_steps, cut))

    def replace_in_steps(
        self, upstream: str, definitions: Sequence[Raw], text: str, gate: GateInSteps, cut: str = ""
    ) -> Steps[bool]:
        """Take in what `gate` lets through of an upstream's list; returns whether a tool came, went or changed.

        Invisible characters are removed. Bad definitions are dropped one by one and explained in `problems`. Over HTTP,
        a definition with a wrong `x-mcp-header` annotation is bad, too (specification: tools). `cut`: what was left out
        of the list before it came here.

        The list before stays until the last step, which puts the whole new one in its place. A config that changes
        meanwhile makes it begin again.
        """
        while True:
            entries = self._entries
            listed = yield from self._read(upstream, definitions)
            lawful, refused = yield from self._lawful_in_steps(upstream, list(listed.tools.values()))
            said = self._hide_credentials(clean(text).encode(errors="replace")).decode()
            admitted, said = yield from gate(lawful, said)
            prepared = yield from self._prepare(upstream, admitted)
            while self._by_upstream.get(upstream, prepared.old) is not prepared.old:
                prepared = yield from self._prepare(upstream, admitted)
            if self._entries is entries:
                break
        self._note_excluded(upstream, listed.excluded)
        problems = (*([cut] if cut else []), *listed.problems, *refused)
        self._note_problems(upstream, problems)
        for problem in _shorten((*self.namespaces.problems.get(upstream, ()), *problems)):
            log.warning("upstream %r: %s", upstream, problem)
        self._known_as[upstream] = listed.known_as
        return self._take_over(upstream, prepared, said)

    def _prepare(self, upstream: str, admitted: Sequence[Tool]) -> Steps[_Prepared]:
        """Look up in steps what `_take_over` needs."""
        old = self._by_upstream.get(upstream, [])
        prefix, found = self.namespaces.prefix(upstream), _Prepared(old)
        for tool in old:
            yield
            found.kept[tool.schema_hash] = tool
            found.before[names.plain_name(prefix, tool.name)] = tool
        for tool in admitted:
            yield
            if self._includes(upstream, tool.name):
                # An unchanged definition stays byte for byte the same and keeps its token count.
                served = _with_widest(found.kept.get(tool.schema_hash), tool)
                name = names.plain_name(prefix, tool.name)
                found.served.append(served)
                found.hashes.add(tool.schema_hash)
                found.named[name] = _with_name(served, ToolId(name))
                found.bare.append(names.plain_name("", tool.name))
        found.names_seen = self._names_in_use
        found.can_be_named = yield from self._can_be_named(upstream, found)
        return found

    def _take_over(self, upstream: str, prepared: _Prepared, text: str) -> bool:
        """Serve these tools of an upstream from now on; returns whether a tool came, went or changed."""
        has_changed = prepared.kept.keys() != prepared.hashes
        if has_changed or prepared.served != prepared.old or text != self._texts.get(upstream, ""):
            self._by_upstream[upstream] = prepared.served
            self._texts[upstream] = text
            if prepared.names_seen != self._names_in_use:  # another list came meanwhile
                prepared.can_be_named = finish(self._can_be_named(upstream, prepared))
            if prepared.can_be_named:
                self._name_upstream(upstream, prepared)
            else:
                self._name_all()
            self._mark_changed([upstream])
        return has_changed

    def read_definitions(self, upstream: str, definitions: Sequence[Raw]) -> dict[str, tuple[str, bytes]]:
        """Return the hash and the text that definitions would have in the catalog, by the upstream's own names."""
        server, found = self._entries.get(upstream), dict[str, tuple[str, bytes]]()
        for definition in definitions:
            try:
                cleaned = Raw(self._hide_credentials(bytes(definition)))
                name, data = _check_definition(cleaned, over_http=server is not None and server.type == "http")
            except ValueError:
                continue  # `replace` says what is wrong
            found.setdefault(name, (hash_value(without_era(data)), data))
        return found

    def set_token_counts(self, tokens: Mapping[str, int]) -> Steps[None]:
        """Replace estimates by counted tokens, one upstream after the other; `tokens` is keyed by schema hash."""
        for upstream in list(self._by_upstream):
            yield
            for known in (self._by_upstream, self._shown):
                tools = known.get(upstream, ())
                if any(tool.schema_hash in tokens for tool in tools):
                    known[upstream] = [
                        replace(tool, tokens=tokens[tool.schema_hash]) if tool.schema_hash in tokens else tool
                        for tool in tools
                    ]
                    self._tools.update({tool.id: tool for tool in self.of(upstream)})
        for counted in tokens:
            self._estimates.pop(counted, None)

    def find_uncounted(self) -> Iterator[Tool]:
        """Yield the tools whose tokens are estimated."""
        return (tool for tool in self._tools.values() if tool.tokens is None)

    def tokens(self, tool: ToolId) -> int:
        """Return the tokens of a tool's definition, estimated until they are counted."""
        found = self.get(tool)
        if found is None:
            return 0
        if found.tokens is not None:
            return found.tokens
        if (known := self._estimates.get(found.schema_hash)) is None:
            known = self._estimates[found.schema_hash] = estimate(found.definition.decode())
        return known

    def count_under_new_names(self, usages: Sequence[Usage]) -> list[Usage]:
        """Return how often each tool was used, under the name that it has now: one that the user renames keeps what is
        known of its use."""
        if not any(self._is_old(each.tool) for each in usages):
            return list(usages)
        found: dict[ToolId, Usage] = {}
        for each in usages:
            tool = self.name_now(each.tool)
            old = found.get(tool, Usage(tool, 0, 0, 0.0))
            last_at = max(old.last_at, each.last_at)
            found[tool] = Usage(tool, old.calls + each.calls, old.misses + each.misses, last_at)
        return sorted(found.values(), key=lambda each: (-each.calls, -each.last_at, each.tool))

    def name_now(self, tool: ToolId) -> ToolId:
        """Return the name that a tool has now, whatever it was called when this name was given to it."""
        if not self._is_old(tool):
            return tool
        key = self._given[tool]
        return next((each.id for each in self.of(key[0]) if each.name == key[1]), tool)

    def _is_old(self, name: ToolId) -> bool:
        """Tell whether a name was given to a tool and is not in use."""
        return self.get(name) is None and name in self._given

    def pins(self, patterns: Sequence[str] = ()) -> list[ToolId]:
        """Return the tools that are always listed: those that match their upstream's own `pin` by the upstream's name
        for them, and those that match `patterns` by exposed name."""
        if not patterns and not any(each.entry.pin for each in self._entries.values()):
            return []
        return [tool.id for tool in self.tools() if self.is_pinned(tool, patterns)]

    def is_pinned(self, tool: Tool, patterns: Sequence[str] = ()) -> bool:
        """Tell whether a tool is one of the `pins`."""
        own = self._entries[tool.upstream].entry.pin
        return matches(tool.name, own) or matches(tool.id, patterns)

    def definition(self, tool: Tool, extra_meta: Mapping[str, Any] | None = None, era: Era = "legacy") -> Raw:
        """Return the tool as a client of an era sees it: under its exposed name, and otherwise as the upstream or the
        user wrote it. `extra_meta`: members of its `_meta`, None for one that goes."""
        members: dict[str, Any] = jsonrpc.fields(tool.definition if era == "modern" else narrow(tool.definition))
        members["name"] = tool.id
        if extra_meta:
            meta = {**jsonrpc.fields(members.get("_meta", jsonrpc.UNSET)), **extra_meta}
            members["_meta"] = {key: value for key, value in meta.items() if value is not None}
        return jsonrpc.raw(members)

    def follow_names(self, given: Mapping[ToolId, Key], prefixes: Mapping[str, str] | None = None) -> None:
        """Take names that a store gives for good, which beat the ones given while it could not be read."""
        self._given = lawful({**self._given, **given})
        self.configure(list(self._entries.values()), prefixes)

    def _hide_credentials(self, data: bytes) -> bytes:
        """Return what a server says without the credentials of any server: it may repeat its environment."""
        for secrets in self._secrets:
            data = secrets.hide_credentials(data)
        return data

    def _includes(self, upstream: str, tool: str) -> bool:
        entry = self._entries.get(upstream)
        return entry is not None and entry.offers(tool)

    def _read(self, upstream: str, definitions: Sequence[Raw]) -> Steps[_Listed]:
        """Read the definitions one by one. Those that were in the last list too were read then."""
        server = self._entries.get(upstream)
        over_http = server is not None and server.type == "http"
        listed, known_as = _Listed(), self._known_as.get(upstream, {})
        before = {tool.name: tool.id for tool in self.of(upstream)}
        for position, definition in enumerate(definitions):
            yield
            written = self._hide_credentials(bytes(definition))
            key = hashlib.blake2b(written, digest_size=16).digest()
            if (tool := known_as.get(key)) is None:
                try:
                    name, data = _check_definition(Raw(written), over_http)
                except ValueError as error:
                    listed.problems.append(f"tool {position + 1} was dropped: {error}")
                    continue
                id = ToolId(self.overrides.plain_name(upstream, name))
                tool = Tool(id, upstream, name, data, hash_value(without_era(data)))
            listed.known_as[key] = tool
            if tool.name in listed.tools:
                listed.problems.append(f"tool {tool.name!r} was listed twice; the first is used")
            elif not self._includes(upstream, tool.name):
                listed.excluded.add(tool.name)
            listed.tools.setdefault(tool.name, _with_name(tool, before.get(tool.name) or tool.id))
        return listed

    def _note_excluded(self, upstream: str, excluded: Set[str]) -> None:
        if excluded != self._excluded.get(upstream, frozenset()):
            self._excluded[upstream] = frozenset(excluded)
            self._resolver = None  # their own names are not free

    def _lawful_tools(self, upstream: str, tools: Sequence[Tool]) -> tuple[list[Tool], tuple[str, ...]]:
        """Return the tools whose names the upstream may have, and one line on the others, if there are any."""
        return finish(self._lawful_in_steps(upstream, tools))

    def _lawful_in_steps(self, upstream: str, tools: Sequence[Tool]) -> Steps[tuple[list[Tool], tuple[str, ...]]]:
        refused: dict[str, str] = {}
        for tool in tools:
            yield
            if (why := self.namespaces.refusal(upstream, tool.name)) is not None:
                refused[tool.name] = why
        return [tool for tool in tools if tool.name not in refused], say_refused(refused)

    def note_problems(self, upstream: str, list_name: str, problems: Sequence[str]) -> None:
        """Keep what is wrong with a list of an upstream that holds no tools."""
        if list(problems) == list(self._list_problems.get(upstream, {}).get(list_name, ())):
            return
        for problem in _shorten(problems):
            log.warning("upstream %r: %s", upstream, problem)
        self._list_problems.setdefault(upstream, {})[list_name] = problems
        self._note_problems(upstream, self._list_problems[upstream].get("tools", ()))
        if self.overrides.of(upstream):
            self._show(upstream)

    def _note_problems(self, upstream: str, problems: Sequence[str]) -> None:
        lists = self._list_problems.setdefault(upstream, {})
        lists["tools"] = problems
        every = (problem for problems in lists.values() for problem in problems)
        found = _shorten((*self.namespaces.problems.get(upstream, ()), *every))
        self._read_problems[upstream] = self.problems[upstream] = found

    def _show(self, upstream: str) -> None:
        """Take in what the user writes about the tools of one upstream, once they have their names."""
        self._shown.pop(upstream, None)
        if self.overrides.of(upstream):
            tools = self._by_upstream[upstream]
            self._shown[upstream] = [self.overrides.apply(tool) for tool in tools]
            problems = self.overrides.problems(upstream, tools, self._excluded.get(upstream, ()))
            self.problems[upstream] = (*self._read_problems.get(upstream, ()), *problems)

    def _note_prefixes(self) -> None:
        """Take in what is wrong with prefixes; what is wrong with tools is found when they are read."""
        for upstream in self._entries:
            if upstream not in self._by_upstream or upstream in self.namespaces.problems:
                self._note_problems(upstream, ())

    def _name_all(self) -> None:
        listed = [tool for name in self._entries for tool in self._by_upstream.get(name, ())]
        plain = {
            (each.upstream, each.name): ToolId(self.overrides.plain_name(each.upstream, each.name)) for each in listed
        }
        self._plain = Counter(plain.values())
        found = plain if self._have_all(plain) else self._assign_names(plain)
        self._are_plain = not self.namespaces.bare() and plain == found
        renamed: list[str] = []
        for upstream, tools in self._by_upstream.items():
            named = [_with_name(tool, found[upstream, tool.name]) for tool in tools]
            if [tool.id for tool in named] != [tool.id for tool in tools]:
                renamed.append(upstream)
            self._by_upstream[upstream] = named
            self._show(upstream)
        self._shown = {name: tools for name, tools in self._shown.items() if name in self._by_upstream}
        self._tools = {tool.id: tool for name in self._by_upstream for tool in self.of(name)}
        self._resolver = None
        self.version += 1
        self._mark_changed(renamed)

    def _have_all(self, plain: Mapping[Key, ToolId]) -> bool:
        """Tell whether each tool was given its plain name for good: then it keeps it, and nothing has to be chosen. A
        warm start finds tens of thousands so."""
        given = self._given
        return all(given.get(name) == key for key, name in plain.items()) and not names.OWN & self._plain.keys()

    def _assign_names(self, tools: Iterable[Key]) -> dict[Key, ToolId]:
        listed = [(key, self.namespaces.prefix(key[0])) for key in tools]
        return names.assign_names(listed, self._given, self.overrides.names)

    def _mark_changed(self, upstreams: Iterable[str]) -> None:
        for upstream in upstreams:
            self._changed_at.pop(upstream, None)
            self._changed_at[upstream] = self.version

    @property
    def _names_in_use(self) -> tuple[int, int]:
        """Changes with the tools that are served and with the names that were given for good."""
        return self.version, self._names_given

    def _can_be_named(self, upstream: str, prepared: _Prepared) -> Steps[bool]:
        """Tell in steps whether the tools of one upstream can have their plain names, because no other upstream wants
        or has one of them; otherwise all tools must be named together. A cold start brings hundreds of upstreams one by
        one."""
        if not self.namespaces.prefix(upstream) or self.overrides.renames(upstream):
            return False  # other upstreams may have tools of the same own names
        before, named = prepared.before, prepared.named
        if len(before) < len(prepared.old) or len(named) < len(prepared.served):
            return False
        if before.keys() - named.keys() and not self._are_plain:
            return False  # another tool may have been denied a name that now becomes free
        for name, tool in before.items():
            yield
            if tool.id != name or self._plain[name] > 1:
                return False
        given = self._given
        for name, tool in named.items():
            yield
            key = (upstream, tool.name)
            has = self._tools.get(ToolId(name))
            is_free = (has is None or has.upstream == upstream) and (name in before or not self._plain[name])
            if name in names.OWN or not is_free or given.get(ToolId(name), key) != key:
                return False
        for bare in prepared.bare:
            yield
            if self._plain[bare]:
                return False  # an upstream without a prefix may lose this name
        return True

    def _name_upstream(self, upstream: str, prepared: _Prepared) -> None:
        """Give the tools of one upstream their plain names."""
        self._plain.subtract(prepared.before.keys())
        self._plain.update(prepared.named.keys())
        for tool in prepared.old:
            del self._tools[tool.id]
        self._by_upstream[upstream] = list(prepared.named.values())
        self._show(upstream)
        self._tools.update({tool.id: tool for tool in self.of(upstream)})
        self._resolver = None
        self.version += 1


def _secrets_of(entries: Sequence[Server]) -> list[Secrets]:
    """Return the secrets of servers, the same ones once: each definition is searched for them."""
    return list(dict.fromkeys(entry.secrets for entry in entries if entry.secrets.values))


def _with_widest(known: Tool | None, listed: Tool) -> Tool:
    """Return the known form of a tool, or the listed one if it is new or says more: servers list for legacy clients
    what is left of the definition for modern ones."""
    if known is None:
        return listed
    if is_wide(listed.definition) and not is_wide(known.definition):
        return replace(known, definition=listed.definition)
    return known


def _shorten(problems: Sequence[str]) -> tuple[str, ...]:
    """Return as much of the problems of a server as is kept."""
    more = [f"and {len(problems) - MOST_PROBLEMS} more like these"] if len(problems) > MOST_PROBLEMS else []
    return (*(each[:MOST_PROBLEM] for each in problems[:MOST_PROBLEMS]), *more)


def _with_name(tool: Tool, name: ToolId) -> Tool:
    return tool if tool.id == name else replace(tool, id=name)


def _clean_tool(tool: Tool) -> Tool | None:
    """Return a stored tool without invisible characters, None where they stand in a name or a key."""
    try:
        cleaned = clean_member(tool.definition)
    except ValueError:
        return None
    if cleaned is tool.definition:
        return tool
    return (
        replace(tool, definition=cleaned, schema_hash=hash_value(without_era(cleaned))) if is_clean(tool.name) else None
    )


def _check_definition(definition: Raw, over_http: bool) -> tuple[str, bytes]:
    """Return the name and the compact bytes of a usable definition. Raises ValueError, which says what is wrong with
    it."""
    name = names.check_name(jsonrpc.text(jsonrpc.fields(definition).get("name")))
    try:
        members = jsonrpc.fields(clean_member(bytes(definition)))
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    schema = members.get("inputSchema")
    if schema is None:
        raise ValueError(f"{name!r} has no inputSchema")
    try:
        parts = jsonrpc.fields(schema)
    except ValueError:
        raise ValueError(f"the inputSchema of {name!r} is not an object") from None
    kind = jsonrpc.text(parts.get("type")) if "type" in parts else None
    if kind is None and "type" not in parts:
        # Strict clients reject a whole list for a missing type; an object is what it means.
        members["inputSchema"] = jsonrpc.raw({"type": "object", **parts})
    elif kind != "object":
        raise ValueError(f'the inputSchema of {name!r} has type {bytes(parts["type"]).decode()}, not "object"')
    if "execution" in members and jsonrpc.member(members["execution"], "taskSupport") == "required":
        raise ValueError(f"{name!r} runs only as a task, which foretool does not carry")
    if "outputSchema" in members and bytes(members["outputSchema"])[:1] != b"{":
        del members["outputSchema"]  # strict clients reject a whole list for it
    if "_meta" in members and bytes(members["_meta"])[:1] != b"{":
        del members["_meta"]
    data = jsonrpc.encode(members)
    if over_http and (problem := schema_problem(annotated_schema(data))):
        raise ValueError(f"{name!r}: {problem}")
    if len(data) > MAX_DEFINITION:
        raise ValueError(f"{name!r} is {len(data)} bytes long, over the limit of {MAX_DEFINITION}")
    return name, jsonrpc.one_line(data)
