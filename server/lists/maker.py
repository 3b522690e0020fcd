"""Makes a list of tools: `ListDraft.choose` reads in the order in which `server.lists` explains it.

Making a list changes nothing and stores nothing; `epochs` keeps what was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct

from foretool.retrieval.rankers.usage import HALF_LIFE_S
from foretool.retrieval.tokens import estimate, fill_budget
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import write_definition
from foretool.server.catalog.search import Search
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.lists import own_tools, pages
from foretool.server.lists.order import (
    BASE_SHARE,
    GAINED_SHARE,
    FirstTools,
    ListBudget,
    NameCost,
    most_used,
    order_by_use,
)
from foretool.server.protocol import apps, jsonrpc, versions
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.output_schemas import is_wide
from foretool.server.protocol.versions import ERAS
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import Reach, TrustPolicy
from foretool.storage.records import Era, Policy, Tool, ToolId, Usage, WorkingSet, working_set_key
from foretool.storage.steps import Steps

_TASKS: Final = 5
"""The latest tasks whose words order what was never used."""


Place = Literal["defined", "named", "hidden"]
"""Where a list has a tool."""


class View(Struct, frozen=True):
    """The list of one profile under one policy in one epoch."""

    policy: Policy
    epoch: int
    tools: tuple[ToolId, ...]
    """The tools in the order of the list, with our own."""
    shown: frozenset[ToolId]
    array: bytes
    """The JSON array of definitions, served as it stands to modern clients, and to legacy ones unless `wide`."""
    tokens: int
    budget: int
    created_at: float
    until: float | None = None
    """When its epoch ends, in seconds since 1970; None if it never does."""
    profile: Profile | None = None
    """Whose list it is; None for the tools of one step of an agent."""
    ranked: tuple[ToolId, ...] | None = None
    """The tools in the order in which they competed for the budget, best first; None if that was not worked out, as for
    a list that was stored."""
    most: int = 0
    """How many of them a step may have at most."""
    offline: frozenset[str] = frozenset()
    """Upstreams whose tools were unknown when the list was made."""
    servers: frozenset[str] | None = None
    """The upstreams that there were then; None where all were that there are."""
    named: tuple[ToolId, ...] = ()
    """Tools that the list lacks and that the definitions of our bridges name."""
    for_pages: frozenset[ToolId] = frozenset()
    """Tools that the list has for the page of their server alone; no model sees them."""
    wide: frozenset[ToolId] = frozenset()
    """Tools whose definitions are not the same in both eras."""
    legacy_array: bytes = b""
    """The array for legacy clients; read only if there are such tools."""

    @property
    def told(self) -> frozenset[ToolId]:
        """The tools that the list defines or names: a call of one is no miss."""
        return self.shown | frozenset(self.named)

    def place_of(self, tool: ToolId) -> Place:
        if tool in self.shown:
            return "defined"
        return "named" if tool in self.named else "hidden"

    def array_for(self, era: Era) -> bytes:
        return self.legacy_array if era == "legacy" and self.wide else self.array


class ListInputs(NamedTuple):
    catalog: Catalog
    search: Search
    recorder: Recorder
    config: LiveConfig
    policy: TrustPolicy
    runs: Callable[[], int]
    """Returns the number of the last learning run."""
    unlisted: Callable[[], frozenset[str]]
    """Returns the upstreams whose tools are unknown."""
    awaited: Callable[[], frozenset[str]]
    """Returns those of them whose tools may come: not where an upstream is known to fail."""


class ListContents(NamedTuple):
    """What a list holds besides our own tools."""

    defined: list[ToolId]
    named: list[ToolId]
    """Tools that the definitions of our bridges name."""

    def tells_of(self, tool: ToolId) -> bool:
        """Return whether the list defines or names a tool."""
        return tool in self.defined or tool in self.named


class ListMaker:
    def __init__(self, inputs: ListInputs) -> None:
        self.inputs = inputs
        self.first = FirstTools(inputs.catalog)
        self._digests: dict[str, tuple[int, bytes]] = {}
        """By profile: the version of the catalog and the digest of its tools."""
        self._pins: WeakKeyDictionary[Reach, tuple[int, list[ToolId]]] = WeakKeyDictionary()
        """By what a profile reaches: the version of the catalog and the pinned tools."""

    def draft(self, profile: Profile, policy: Policy) -> ListDraft:
        """Return a draft of a list. It holds what is known now, so it serves until the next step of a task."""
        return ListDraft(self, profile, policy)

    def forget(self, person: str = "") -> None:
        """Read everything again, because settings, models or the tools of one person have changed."""
        for profile in [key for key in self._digests if not person or key.endswith(f"\x1f{person}")]:
            del self._digests[profile]
        self._pins.clear()
        self.first.forget()

    # -- in steps, what takes long with thousands of tools

    def read_new(self, profile: Profile, policy: Policy) -> Steps[None]:
        """Read what making a new list needs, so that making it then takes milliseconds."""
        yield
        if self.draft(profile, policy).shows_all:
            return
        if self.draft(profile, policy).lines:
            yield from self.inputs.search.prepare_list()
        if (draft := self.draft(profile, policy)).fills:
            yield from self.first.read(draft.competes, draft.competing_key)

    def find_pins(self, reach: Reach) -> list[ToolId]:
        """Return the pinned tools that a profile finds; found once while no tool and no rule changes."""
        catalog = self.inputs.catalog
        version, pins = self._pins.get(reach, (-1, []))
        if version != catalog.version:
            matching = filter(None, map(catalog.get, catalog.pins(reach.pins)))
            pins = [tool.id for tool in matching if reach.finds(tool)]
            self._pins[reach] = (catalog.version, pins)
        return pins

    def digest_tools(self, reach: Reach, pinned: Iterable[ToolId]) -> bytes:
        """Return a digest of the tools that a profile finds; made once while none of them changes."""
        catalog, key = self.inputs.catalog, reach.profile.key
        version, known = self._digests.get(key, (-1, b""))
        if version == catalog.version:
            return known
        digest = hashlib.sha256("\n".join(pinned).encode())
        for name in sorted(filter(reach.admits, catalog.upstreams())):
            if reach.denies_some(name):
                tools = filter(reach.finds, catalog.now.server(name).in_order)
                digest.update("".join([f"{tool.id} {tool.schema_hash}\n" for tool in tools]).encode())
            else:
                digest.update(catalog.now.server(name).digest)
        self._digests[key] = (catalog.version, digest.digest())
        return digest.digest()

    def fitting(self, view: View, grown: Iterable[ToolId], tools: Iterable[ToolId]) -> list[ToolId]:
        """Return the tools that fit in the budget of a list beside those that have grown on it."""
        tokens = self.inputs.catalog.tokens
        return fill_budget(tools, tokens, view.budget - view.tokens - sum(map(tokens, grown)))


class ListDraft:
    """A list of one profile and policy as it would be made now. Each part is computed once, when it is needed."""

    def __init__(self, maker: ListMaker, profile: Profile, policy: Policy) -> None:
        self._maker = maker
        self._catalog = maker.inputs.catalog
        self._settings = maker.inputs.config.settings
        self.profile = profile
        self.policy = policy
        self.reach = maker.inputs.policy.reach(profile)

    # -- which tools are on the list, in the order of `server.lists`

    def choose(self, ranked: tuple[ToolId, ...] | None = None) -> ListContents:
        """Return what the list holds besides our own tools, with tools that compete in this order, or in `ranked`."""
        if self.policy == "full":  # 2. all are wanted
            return ListContents([tool.id for tool in filter(self.reach.finds, self._catalog.tools())], [])
        if self.may_be_whole and self._whole:  # 3. all fit
            return ListContents(self._whole, [])
        # 4. what is pinned; 5. what is needed more than others; 6. what is only named. `write` adds 1 and 7.
        defined, named = self.split(self.ranked, self._names) if ranked is None else self.split(ranked)
        return ListContents([*self.pinned, *defined], named)

    def split(self, ranked: tuple[ToolId, ...], names: Sequence[ToolId] = ()) -> ListContents:
        """Return which of the tools that compete are defined, and which are only named: first those that were used or
        asked for, then `names` in their order; without those, the others as in `ranked`."""
        wanted = {*self._needed, *(self._relevant if names else ())}
        to_name = list(dict.fromkeys((*filter(wanted.__contains__, ranked), *(names or ranked))))
        if self._settings.list_names:
            to_define = [tool for tool in ranked if self._is_defined(tool, tool in wanted)]
        else:  # those that it would name
            competing = set(to_name)
            to_define = [tool for tool in ranked if tool in competing]
        return ListContents(*self.budget.split(to_define, to_name))

    def _is_defined(self, tool: ToolId, is_wanted: bool) -> bool:
        """Return whether a list that names tools may define this one: models call what is defined, for other things as
        well."""
        if self.profile.shows_pages and pages.has_page(self._catalog, tool):
            return True  # hosts show those of defined tools alone
        return tool in self._most_used or (is_wanted and not self._name_cost(tool).own)

    @property
    def may_be_whole(self) -> bool:
        """Whether the list holds every tool if all of them fit."""
        return self._settings.list_whole

    @cached_property
    def shows_all(self) -> bool:
        """Whether the list holds every tool of the profile that is known."""
        return self.policy == "full" or (self.may_be_whole and bool(self._whole))

    @cached_property
    def _whole(self) -> list[ToolId]:
        return self.fitting_whole(self.profile.whole_tokens) or self.fitting_whole(self.profile.list_tokens)

    def fitting_whole(self, budget: int) -> list[ToolId]:
        """Return all tools of the profile if they fit a budget beside our own, and are not too many for some clients
        where that is over `list_tokens`; else []."""
        left = budget - _count(self._own_tools(is_whole=True))
        if sum(self._catalog.now.count_tools(self.reach).values()) > left:
            return []  # each takes a token at least
        whole: list[ToolId] = []
        for tool in filter(self.reach.finds, self._catalog.tools()):
            left -= self._catalog.tokens(tool.id)
            if left < 0:
                return []
            whole.append(tool.id)
        return whole if budget <= self.profile.list_tokens or len(whole) <= pages.MOST_TOOLS else []

    @cached_property
    def pinned(self) -> list[ToolId]:
        return self._maker.find_pins(self.reach)

    @cached_property
    def budget(self) -> ListBudget:
        """The tokens for tools beside our own and pinned ones, and what goes to names of them."""
        is_growing = self.policy == "growing"
        left = self.profile.list_tokens - _count(self.own) - sum(map(self._catalog.tokens, self.pinned))
        base = int(BASE_SHARE * left)
        if self._settings.list_names:
            kept_free = int(GAINED_SHARE * left) if is_growing else 0
            return ListBudget(self._catalog.tokens, self._name_cost, left, base, kept_free)
        begins_with = base if is_growing else left
        return ListBudget(self._catalog.tokens, None, left, begins_with, left - begins_with)

    @cached_property
    def ranked(self) -> tuple[ToolId, ...]:
        """The tools in the order in which they compete: by usage, then by relevance to the
        profile's description and to recorded tasks, then by what is needed at first; none where all are listed."""
        if self.shows_all:
            return ()
        needed = self._needed
        first = self._maker.first
        fill = first.order(self.competes, self.profile.list_tokens, self.competing_key) if self.fills else ()
        ranked = tuple(dict.fromkeys((*filter(self._is_there, (*needed, *self._relevant)), *fill)))
        return pages.put_pages_first(ranked, self._catalog, self.reach, self.competes)

    def rank_use(self, listed: Iterable[ToolId]) -> tuple[ToolId, ...]:
        """Return the tools in the order in which they would compete now. What is `listed` for its relevance comes after
        what was used: searching again before the first list would cost more than it gains."""
        needed = dict.fromkeys([*self._order_by_use(self.usages), *listed])
        ranked = tuple(filter(self._is_there, needed))
        return pages.put_pages_first(ranked, self._catalog, self.reach, self.competes)

    # -- what the order is made of

    @property
    def _names(self) -> list[ToolId]:
        """The tools in the order in which a new list names those of which nothing says that they are needed."""
        return self._maker.first.order_names(self.competes, self.competing_key) if self.fills else []

    @cached_property
    def _relevant(self) -> list[ToolId]:
        """The tools that fit the words of the profile and of recorded tasks, best first."""
        return self._maker.inputs.search.rank_for_list(self.lines) if self.lines else []

    @cached_property
    def _needed(self) -> list[ToolId]:
        """The tools that were used, best first."""
        return self._order_by_use([usage for usage in self.usages if self._is_there(usage.tool)])

    @cached_property
    def _most_used(self) -> frozenset[ToolId]:
        return most_used(self.usages, self._maker.inputs.recorder.now(), HALF_LIFE_S)

    def competes(self, tool: Tool) -> bool:
        """Return whether a tool competes for the budget: it is not pinned, its latest calls did not all fail, and the
        profile finds it."""
        return tool.id not in self._left_out and self.reach.finds(tool)

    @cached_property
    def competing_key(self) -> Hashable:
        """A value that changes with everything on which `competes` depends, except the catalog."""
        return self.reach, self._left_out

    @cached_property
    def _left_out(self) -> frozenset[ToolId]:
        return frozenset({*self.pinned, *map(self._catalog.meanings.name_now, self._maker.inputs.recorder.failing())})

    def _is_there(self, tool: ToolId) -> bool:
        known = self._catalog.get(tool)
        return known is not None and self.competes(known)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The texts to which tools should be relevant: the profile's description and recent tasks."""
        tasks = self._maker.inputs.recorder.tasks(_TASKS, self.profile.name)
        return tuple(line for line in (self.profile.about, *tasks) if line.strip())

    @property
    def fills(self) -> bool:
        """Whether the rest of the list's budget is filled with tools that were never used (`list_fill`)."""
        return self._settings.list_fill

    @cached_property
    def usages(self) -> list[Usage]:
        """How often each tool was used, under the name that it has now."""
        return self._catalog.meanings.count_under_new_names(self._maker.inputs.recorder.usage_of(self.profile.name))

    def _order_by_use(self, usages: Sequence[Usage]) -> list[ToolId]:
        now = self._maker.inputs.recorder.now()
        return order_by_use(usages, self._catalog.tokens, now, HALF_LIFE_S)

    # -- how the list is written

    @cached_property
    def own(self) -> list[tuple[ToolId, Raw]]:
        """foretool's own tools, as defined in a list that leaves out some of the other tools."""
        return self._own_tools(is_whole=False)

    def _own_tools(self, *, is_whole: bool) -> list[tuple[ToolId, Raw]]:
        reach = self.reach
        return own_tools.definitions(
            self._catalog.now.count_tools(reach), reach.bridges, trusts_some=reach.trusts_some,
            unlisted=sum(map(reach.admits, self._maker.inputs.awaited())), is_whole=is_whole,
            for_models=self.profile.shows_pages or bool(reach.page_servers), offers_call_tools=reach.offers_call_tools,
        )  # fmt: skip

    def _name_cost(self, tool: ToolId) -> NameCost:
        return own_tools.name_cost(self._catalog.get(tool))

    @cached_property
    def _for_pages(self) -> list[Tool]:
        return pages.tools_for_pages(self._catalog, self.reach)

    def write(self, contents: ListContents, epoch: int) -> WorkingSet:
        """Return the list as it is stored: its tools by name, so that the same tools have the same bytes."""
        defined = (tool for tool in contents.defined if self._catalog.get(tool) is not None)
        tools = tuple(sorted({*(own for own, _ in self.own), *defined}))
        listing = self._write_array(tools, contents.named, "modern")
        now = self._maker.inputs.recorder.now()
        return WorkingSet(self.key, epoch, tools, listing, now, self.digest, tuple(contents.named))

    def _write_array(self, tools: Sequence[ToolId], named: Sequence[ToolId], era: Era) -> bytes:
        """Return the definitions of these tools, our own among them, as a JSON array for clients of an era."""
        definitions = dict(self._own_tools(is_whole=True) if self.shows_all else self.own)
        own_tools.name_tools(definitions, named, self._catalog, self.reach)
        pinned = set(self.pinned)
        for tool in filter(None, map(self._catalog.get, tools)):
            mark = {versions.ALWAYS_LOAD: True} if tool.id in pinned else {}
            definitions[tool.id] = write_definition(tool, mark | pages.page_meta(self._catalog, self.reach, tool), era)
        more = [tool for tool in self._for_pages if tool.id not in tools]
        for tool in more:
            definitions[tool.id] = write_definition(tool, apps.write_meta(tool.definition, "app"), era)
        written = (*tools, *(tool.id for tool in more))
        return b"[" + b",".join(bytes(definitions[one]) for one in written if one in definitions) + b"]"

    def append(self, array: bytes, twice: frozenset[ToolId], tools: Iterable[ToolId], era: Era) -> bytes:
        """Return the array with more tools at its end, its bytes before them unchanged. `twice`: tools that the array
        has already, for pages alone; they are taken out of it."""
        new = [tool for tool in filter(None, map(self._catalog.get, tools)) if self.reach.finds(tool)]
        if not new:
            return array
        if gone := twice & {tool.id for tool in new}:
            old = [one for one in jsonrpc.items(array) if jsonrpc.member(one, "name") not in gone]
            array = bytes(jsonrpc.raw(old))
        metas = (pages.page_meta(self._catalog, self.reach, tool) for tool in new)
        more = (bytes(write_definition(tool, meta, era)) for tool, meta in zip(new, metas, strict=True))
        return b",".join([array[:-1], *more]) + b"]"

    def show(self, stored: WorkingSet, until: float | None, ranked: tuple[ToolId, ...] | None = None) -> View:
        """Return a stored list as clients get it. `ranked`: the order in which its tools competed."""
        for_pages = [tool for tool in self._for_pages if tool.id not in stored.tools]
        tools = [*filter(None, map(self._catalog.get, stored.tools)), *for_pages]
        wide = frozenset(tool.id for tool in tools if is_wide(tool.definition))
        arrays = dict.fromkeys(ERAS, stored.listing)
        for era in ERAS if wide else ():
            arrays[era] = self._write_array(stored.tools, stored.named, era)
        own = dict(self.own)
        own_tools.name_tools(own, stored.named, self._catalog, self.reach)
        tokens = sum(map(self._catalog.tokens, stored.tools)) + _count(own.items())
        return View(
            policy=self.policy, epoch=stored.epoch, tools=stored.tools, shown=frozenset(stored.tools),
            array=arrays["modern"], tokens=tokens,
            budget=self.profile.list_tokens, created_at=stored.created_at, until=until, profile=self.profile,
            ranked=() if self.policy == "full" else ranked, offline=self._maker.inputs.unlisted(), named=stored.named,
            servers=frozenset(self._maker.inputs.config.now.servers),
            for_pages=frozenset(tool.id for tool in for_pages), wide=wide, legacy_array=arrays["legacy"],
        )  # fmt: skip

    # -- what a stored list is compared by

    @property
    def key(self) -> str:
        """The key under which the list is stored."""
        return working_set_key(self.profile.key, self.policy)

    @cached_property
    def digest(self) -> str:
        """A digest of everything the list is made of, except usage, which only a new epoch brings in."""
        return hashlib.sha256(b"".join(self._digested())).hexdigest()

    def _digested(self) -> Iterator[bytes]:
        profile, settings = self.profile, self._settings
        parts = (
            profile.key, self.policy, profile.list_tokens, profile.whole_tokens, profile.about, profile.pin,
            settings.pin, profile.servers, settings.list_whole, settings.list_fill, settings.list_names,
        )  # fmt: skip
        yield "".join(map(repr, parts)).encode()
        if (run := self._maker.inputs.runs()) and self.policy != "full":
            yield b"learned %d" % run
        for _, definition in self.own:
            yield bytes(definition)
        yield self._maker.digest_tools(self.reach, self.pinned)
        if servers := self.reach.page_servers:
            yield "\n".join(sorted(servers)).encode()
            for tool in self._for_pages:
                yield f"\n{tool.id} {tool.schema_hash}".encode()


def list_result(array: bytes, era: Era, ttl_ms: int) -> Raw:
    """Wrap a stored array into the result of `tools/list`; the whole list is one page."""
    if era == "legacy":
        return Raw(b'{"tools":' + array + b"}")
    head = b'{"resultType":"complete","tools":'
    meta = b',"_meta":{"%s":%s}' % (versions.META_SERVER_INFO.encode(), bytes(versions.IDENTITY_RAW))
    return Raw(head + array + b',"ttlMs":%d,"cacheScope":"private"' % ttl_ms + meta + b"}")


def _count(definitions: Iterable[tuple[ToolId, Raw]]) -> int:
    """Return the estimated tokens of our own tools."""
    return sum(estimate(bytes(definition).decode()) for _, definition in definitions)
