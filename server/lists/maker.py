"""What a client sees, and why: the list of tools of each profile under each policy.

A list is made once per epoch, stored byte for byte, and served unchanged until the catalog changes, the epoch is over,
or `foretool learn` has run. No request of a client changes it. `epochs` says when an epoch may end early.

`Exposures` is over 300 lines and the file is long: every part of making a list reads the same profile, policy, catalog
and budget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.list_rules import BASE_SHARE, HALF_LIFE_S, Prior, order_tools, split_list
from foretool.retrieval.portable_priors import leave_room
from foretool.retrieval.priors import MOST_OF_ONE
from foretool.retrieval.tokens import estimate, fill_budget
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.imported import ImportedPriors
from foretool.server.catalog.models import LearnedLists
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.config.servers import is_exact
from foretool.server.lists import own_tools
from foretool.server.lists.epochs import Epochs, last_use
from foretool.server.lists.named_tools import NamedTools
from foretool.server.lists.order import FirstTools
from foretool.server.lists.policy import can_be_tried, choose_policy, is_worth_a_try
from foretool.server.protocol import apps, jsonrpc, versions
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.output_schemas import is_wide
from foretool.server.protocol.versions import ERAS
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import Reach, TrustPolicy
from foretool.storage.records import (
    Cause,
    ClientRecord,
    Era,
    Exposure,
    ListReason,
    Policy,
    SessionRecord,
    Tool,
    ToolId,
    Usage,
    WorkingSet,
)
from foretool.storage.steps import Steps

FRESH_S: Final = 1.0
"""The usage that was read for a call of one hidden tool tells for so long why others are hidden: reading it and ranking
all tools takes milliseconds."""

AGAIN: Final = 2
"""How often a list is prepared at most, because tools may change meanwhile."""
PAGES_SHARE: Final = 0.5
"""The part of a list in which tools with pages come first: a server with hundreds of them must not fill it alone."""
MOST_WHOLE: Final = 100
"""Tools that a list of all may have where it is over `list_tokens`, and that a list may have for pages; some clients
refuse lists of more than 128."""


class Why(Struct, frozen=True):
    """The reason that a tool is hidden, and the change that would have shown it."""

    cause: Cause
    rank: int
    of: int
    change: str


class View(Struct, frozen=True):
    """The list of one profile under one policy in one epoch."""

    policy: Policy
    epoch: int
    tools: tuple[ToolId, ...]
    """The tools in the order of the list, with our own two."""
    shown: frozenset[ToolId]
    array: bytes
    """The JSON array of definitions, served as it stands to modern clients, and to legacy ones unless `wide`."""
    tokens: int
    budget: int
    created_at: float
    order: Callable[[], tuple[ToolId, ...]] = tuple
    """Returns the tools in the order in which they competed for the budget, best first."""
    offline: frozenset[str] = frozenset()
    """Upstreams whose tools were unknown when the list was made."""
    until: float | None = None
    """When its epoch ends, in seconds since 1970; None if it never does."""
    would_list: Callable[[ToolId], bool] = lambda tool: False
    """Tells whether a list that is made now has a tool."""
    failing: Callable[[], Collection[ToolId]] = frozenset
    """Returns the tools that no list takes because each of their latest calls failed."""
    kept_back: Callable[[ToolId], int] = lambda tool: 0
    """Returns the tokens that a list which may grow keeps free for that, if they are why it lacks a tool; else 0."""
    wide: frozenset[ToolId] = frozenset()
    """Tools whose definitions are not the same in both eras."""
    legacy_array: bytes = b""
    """The array for legacy clients; read only if there are such tools."""
    named: tuple[ToolId, ...] = ()
    """Tools that the list lacks and that the definitions of our bridges name."""
    for_pages: frozenset[ToolId] = frozenset()
    """Tools that the list has for the page of their server alone; no model sees them."""
    shows_page: Callable[[ToolId], bool] = lambda tool: False
    """Tells whether a tool has a page that the client would show if the list had the tool."""

    def array_for(self, era: Era) -> bytes:
        """Return the JSON array of definitions for clients of an era."""
        return self.legacy_array if era == "legacy" and self.wide else self.array

    def why_hidden(self, tool: ToolId, upstream: str) -> Why:
        """Explain why a tool is not in `shown`, and which change would have shown it."""
        ranked = self.order()
        rank = ranked.index(tool) + 1 if tool in ranked else 0
        if upstream in self.offline:
            change = f"none: the tools of {upstream!r} were not known yet, and are from now on"
            return Why("offline", rank, len(ranked), change)
        if self.would_list(tool):
            change = "none: the list was made before the tool was used or came, and the next one has it"
            return Why("stale", rank, len(ranked), change)
        if self.shows_page(tool):
            change = f"pin {tool}, or raise list_tokens over {self.budget}: its page is shown if the list has it"
            return Why("app", rank, len(ranked), change)
        if (tokens := self.kept_back(tool)) > 0:
            change = f'pin {tool}, or set "policy": "frozen": this list keeps {tokens:,} tokens for what it gains'
            return Why("policy", rank, len(ranked), change)
        return self._explain_rank(tool, rank, len(ranked))

    def _explain_rank(self, tool: ToolId, rank: int, of: int) -> Why:
        """Explain why a known tool is hidden. `rank`: its place among `of` tools, 0 if it did not compete."""
        if not rank and tool in self.failing():
            return Why("failing", 0, of, f"see why its calls fail, or pin {tool}: one that works brings it back")
        if rank:
            return Why("budget", rank, of, f"raise list_tokens over {self.budget}, or pin {tool}")
        return Why("rank", 0, of, f"pin {tool}, or let it be used: the working set follows usage")


class Exposures:
    """Makes the lists of all profiles, keeps each for its epoch, and records which client was given which."""

    def __init__(
        self,
        catalog: Catalog,
        rank: Callable[[Sequence[str]], Sequence[ToolId]],
        prepare_ranking: Callable[[], Steps[None]],
        recorder: Recorder,
        config: LiveConfig,
        unlisted: Callable[[], frozenset[str]],
        learned: LearnedLists,
        policy: TrustPolicy,
        imported: ImportedPriors,
    ) -> None:
        """`rank` returns the best tools for some words, best first, at once after `prepare_ranking`.
        `unlisted` returns the upstreams whose tools are unknown."""
        self._catalog = catalog
        self._rank = rank
        self._prepare_ranking = prepare_ranking
        self._recorder = recorder
        self._config = config
        self._unlisted = unlisted
        self._learned = learned
        self._policy = policy
        self._imported = imported
        self._named = NamedTools(catalog)
        self._first = FirstTools(catalog)
        self._views: dict[tuple[str, Policy], View] = {}
        self._version = -1
        self._digests: dict[str, tuple[int, bytes]] = {}
        """By profile: the version of the catalog and the digest of its tools."""
        self._prepared: set[tuple[int, str, Policy]] = set()
        """By version of the catalog, profile and policy: lists that were prepared."""
        self._movable: set[tuple[str, Policy]] = set()
        """Lists that are made again when they are next wanted, if what was used has changed."""
        self._epochs = Epochs(recorder, config)

    def choose_policy(self, profile: Profile, session: SessionRecord) -> Policy:
        """Return the policy of one session, from its profile, its era and the client ledger.

        `auto` is `full` where a list of all tools was measured to cost the client less than discoveries.
        """
        ledger = self._recorder.client(session.client, session.version, session.era)
        if profile.policy == "auto" and ledger is not None and self._pays_whole(profile, ledger.whole_tokens):
            return "full"
        return choose_policy(profile.policy, session.era, session.client, ledger)

    def begin_try(self, profile: Profile, session: SessionRecord) -> bool:
        """Tell whether the list of a client that was never measured may grow once, and record the attempt."""
        key = (session.client, session.version, session.era)
        if self._recorder.refusal:
            return False  # what the attempt shows could not be kept
        if not can_be_tried(profile.policy, session.era):
            return False  # every search comes here, and need not read the store for that
        if not is_worth_a_try(profile.policy, session.era, session.client, self._recorder.client(*key)):
            return False
        self._recorder.add_client_relist(ClientRecord(*key, 0, 0, 0.0, self._recorder.now(), tries=1))
        return True

    def view(self, profile: Profile, policy: Policy) -> View:
        """Return the current list. This is cheap unless an epoch has begun."""
        if self._version != self._catalog.version:
            self._views.clear()
            self._version = self._catalog.version
        key = (profile.key, policy)
        view = self._views.get(key)
        if view is None:
            view = self._restore(profile, policy)
            if view is not None and key in self._movable:
                view = self._move(profile, policy, view)
            self._movable.discard(key)
            view = self._views[key] = view or self._make_stored(profile, policy)
        return view

    def is_at_hand(self, profile: Profile, policy: Policy) -> bool:
        """Tell whether `view` has its list already."""
        return self._version == self._catalog.version and (profile.key, policy) in self._views

    def prepare(self, profile: Profile, policy: Policy) -> Steps[None]:
        """Do in steps what `view` needs and what takes long with thousands of tools. Where tools have changed
        meanwhile, their part is done as well: what was read of the others is kept."""
        for _ in range(AGAIN):
            version = self._catalog.version
            yield from self._prepare(profile, policy)
            if self._catalog.version == version:
                return

    def _prepare(self, profile: Profile, policy: Policy) -> Steps[None]:
        done = (self._catalog.version, profile.key, policy)
        if done in self._prepared:
            return
        reach = self._policy.reach(profile)
        for name in self._catalog.upstreams():
            yield
            if reach.hides_some(name):
                yield from self._catalog.read(name)
            self._catalog.digest(name)
        if self._catalog.is_unread:
            yield from self._read_needed(profile, policy)
        self._prepared = {each for each in self._prepared if each[0] == self._catalog.version} | {done}
        if self._restore(profile, policy) is not None:
            return
        yield from self._catalog.read_rest()
        if self.shows_all(profile, policy):
            return
        if self._read_lines(profile):
            yield from self._prepare_ranking()
        if self._config.settings.list_fill and self._prior().fill:
            yield from self._first.read(*self._competing(profile))

    def _read_needed(self, profile: Profile, policy: Policy) -> Steps[None]:
        """Read, of tools that are in the store alone, those that a list made before needs to be given again."""
        used = [each.tool for each in self._recorder.usage()] if (profile.key, policy) in self._movable else []
        for tool in used:
            yield
            if self._catalog.get(tool) is None:
                yield from self._catalog.open_names()  # it may have had this name
                break
        if policy == "full" or not all(map(is_exact, (*self._config.settings.pin, *profile.pin))):
            yield from self._catalog.read_rest()

    def preview(self, profile: Profile, policy: Policy) -> View:
        """Return the list that `view` would return, without storing a new one."""
        return self._restore(profile, policy) or self.try_out(profile, policy)

    def try_out(self, profile: Profile, policy: Policy) -> View:
        """Return the list that would be made now, whatever was stored."""
        return self._show(profile, policy, *self._make(profile, policy))

    def would_list(self, profile: Profile, policy: Policy, tool: ToolId) -> bool:
        """Tell whether the list that would be made now has a tool, without writing that list."""
        ranked = () if self.shows_all(profile, policy) else self._ranked(profile)
        return tool in self._split(profile, policy, ranked)[0]

    def views(self) -> list[View]:
        return list(self._views.values())

    def forget(self) -> None:
        """Check every list again, because settings or models have changed."""
        self._views.clear()
        self._digests.clear()
        self._prepared.clear()
        self._first.forget()

    def forget_person(self, person: str) -> None:
        """Check the lists of one person again, because a server has listed other tools to them."""
        for key in [key for key in self._views if key[0].endswith(f"\x1f{person}")]:
            del self._views[key]
        for profile in [profile for profile in self._digests if profile.endswith(f"\x1f{person}")]:
            del self._digests[profile]
        self._prepared.clear()
        self._first.forget()

    def advance(self) -> bool:
        """Begin a new epoch for lists older than `epoch_s` and for those that nobody uses; return whether there is
        one."""
        due = [key for key, view in self._views.items() if self._epochs.is_over(view.created_at)]
        quiet = [key for key in self._views if key not in due and self._epochs.is_quiet(key[0])]
        for key in (*due, *quiet):
            del self._views[key]
        self._movable.update(quiet)
        return bool(due or quiet)

    def follow_others(self) -> bool:
        """Take up the lists that other proxies have made since; return whether there is one."""
        stored = {key: self._recorder.working_set(f"{key[0]}/{key[1]}") for key in self._views}
        due = [key for key, found in stored.items() if found is not None and found.epoch > self._views[key].epoch]
        for key in due:
            del self._views[key]
        return bool(due)

    def begin_session(self, profile: str) -> None:
        """Let the lists of a profile move: a session begins, and no other one of this process shares them."""
        if self._epochs.may_move():
            keys: list[tuple[str, Policy]] = [(profile, "frozen"), (profile, "growing")]
            self._movable.update(keys)
            for key in keys:
                self._views.pop(key, None)

    def grown(self, view: View, tools: Sequence[ToolId], profile: Profile, era: Era = "legacy") -> bytes:
        """Return the array of a list that grew: the old array, byte for byte, then the new tools."""
        found = (tool for one in tools if one not in view.shown and (tool := self._catalog.get(one)) is not None)
        reach, array = self._policy.reach(profile), view.array_for(era)
        new = list(filter(reach.finds, found))
        if not new:
            return array
        if twice := view.for_pages & {tool.id for tool in new}:
            old = [one for one in jsonrpc.items(array) if jsonrpc.member(one, "name") not in twice]
            array = bytes(jsonrpc.raw(old))
        more = (bytes(self._catalog.definition(tool, self._page_meta(reach, tool), era)) for tool in new)
        return b",".join([array[:-1], *more]) + b"]"

    def fitting(self, view: View, grown: Sequence[ToolId], tools: Iterable[ToolId]) -> list[ToolId]:
        """Return the tools that fit in the budget of a list beside those that have grown on it."""
        left = view.budget - view.tokens - sum(self._catalog.tokens(tool) for tool in grown)
        return fill_budget(tools, self._catalog.tokens, left)

    # -- recording

    def record(self, session: str, view: View, grown: Sequence[ToolId], reason: ListReason, profile: str = "") -> int:
        """Record what a session was given; return the id of the record."""
        more = tuple(tool for tool in grown if tool not in view.shown)
        tokens = view.tokens + sum(self._catalog.tokens(tool) for tool in more)
        self._epochs.note_given(profile)
        given = Exposure(session, self._recorder.now(), view.policy, view.epoch, view.tools + more, tokens, reason)
        id = self._recorder.exposure(given)
        if view.named:
            self._recorder.exposure(replace(given, tools=view.named, tokens=0, reason="named"))
        return id

    def given(self, view: View, id: int, grown: Sequence[ToolId]) -> View:
        """Return the list of a record, as far as it is not this one."""
        found = self._recorder.exposed(id)
        if found is None:
            return view
        tools = tuple(tool for tool in found.tools if tool not in grown)
        if set(tools) == {tool for tool in view.tools if tool not in grown}:
            return view
        return replace(view, epoch=found.epoch, tools=tools, shown=frozenset(tools), array=b"", legacy_array=b"")

    def record_relist(self, session: SessionRecord, delay_s: float | None) -> None:
        """Record that a client listed again `delay_s` after it was told to, or (None) did not in time."""
        relisted, ms = (0, 0.0) if delay_s is None else (1, delay_s * 1000)
        key = (session.client, session.version, session.era)
        self._recorder.add_client_relist(ClientRecord(*key, 1, relisted, ms, self._recorder.now()))

    def record_late(self, session: SessionRecord) -> None:
        """Record that a client listed again, later than it should have."""
        key = (session.client, session.version, session.era)
        self._recorder.add_client_relist(ClientRecord(*key, 0, 0, 0.0, self._recorder.now(), late=1))

    # -- making a list

    def _make_stored(self, profile: Profile, policy: Policy, ranked: tuple[ToolId, ...] | None = None) -> View:
        """Make and store a new list, from tools in this order or in the one of `_ranked`."""
        new, ranked = self._make(profile, policy, ranked)
        if not self._recorder.save_working_set(new):
            # Another proxy on this store was first; all of them serve one list.
            theirs = self._recorder.working_set(new.key)
            new = theirs if theirs is not None and theirs.inputs == new.inputs else new
        return self._show(profile, policy, new, ranked)

    def _move(self, profile: Profile, policy: Policy, view: View) -> View:
        """Return a list that holds what was used since this one was made; this one, if that changes nothing."""
        usages = self._read_usage(profile)
        if last_use(usages) <= view.created_at:
            return view
        ranked = self._rank_use(profile, usages, (*view.tools, *view.named), self._pinned(profile))
        chosen, named = self._split(profile, policy, ranked)
        if {*chosen, *dict(self._own(profile))} == view.shown and set(named) == set(view.named):
            return view
        return self._make_stored(profile, policy, ranked)

    def _rank_use(
        self, profile: Profile, usages: Sequence[Usage], listed: Iterable[ToolId], pinned: Iterable[ToolId]
    ) -> tuple[ToolId, ...]:
        """Return the tools in the order in which they would compete now. What is listed for its relevance comes after
        what was used: searching again before the first list would cost more than it gains."""
        left_out, finds = {*pinned, *self._read_failing()}, self._policy.reach(profile).finds

        def competes(tool: Tool) -> bool:
            return tool.id not in left_out and finds(tool)

        found = dict.fromkeys([*self._expected(profile, usages), *listed])
        ranked = tuple(id for id in found if (tool := self._catalog.get(id)) and competes(tool))
        return self._pages_first(profile, ranked, competes)

    def _restore(self, profile: Profile, policy: Policy) -> View | None:
        """Return the stored list, or None if its epoch is over or anything it was made of has changed."""
        stored = self._recorder.working_set(f"{profile.key}/{policy}")
        if stored is None or stored.inputs != self._digest_inputs(profile, policy):
            return None
        return None if self._epochs.is_over(stored.created_at) else self._show(profile, policy, stored)

    def _show(
        self, profile: Profile, policy: Policy, stored: WorkingSet, ranked: tuple[ToolId, ...] | None = None
    ) -> View:
        tokens = sum(self._catalog.tokens(tool) for tool in stored.tools)
        own = sum(estimate(bytes(definition).decode()) for _, definition in self._own(profile))

        @cache
        def order() -> tuple[ToolId, ...]:
            # Only a miss needs the order, so a restored list is ranked again only then.
            return ranked if ranked is not None else () if policy == "full" else self._ranked(profile)

        for_pages = [tool for tool in self._for_pages(profile) if tool.id not in stored.tools]
        found = [*filter(None, map(self._catalog.get, stored.tools)), *for_pages]
        wide = frozenset(tool.id for tool in found if is_wide(tool.definition))
        arrays = dict.fromkeys(ERAS, stored.listing)
        for era in ERAS if wide else ():
            arrays[era] = self._write(profile, policy, stored.tools, stored.named, era)
        own += self._named.tokens(stored.named)
        return View(
            policy, stored.epoch, stored.tools, frozenset(stored.tools), arrays["modern"],
            tokens + own, profile.list_tokens, stored.created_at, order, self._unlisted(),
            self._epochs.end(stored.created_at), self._fits(profile, policy, stored.tools, is_own=True),
            self._recorder.failing,
            partial(self._keeps_back, profile, policy, self._fits(profile, "frozen", stored.tools), order), wide,
            arrays["legacy"],
            stored.named,
            frozenset(tool.id for tool in for_pages),
            *([self._has_page] if profile.shows_pages else []),
        )  # fmt: skip

    def _has_page(self, tool: ToolId) -> bool:
        found = self._catalog.get(tool)
        return found is not None and bool(apps.pages_of(found.definition))

    def _fits(
        self, profile: Profile, policy: Policy, listed: tuple[ToolId, ...], *, is_own: bool = False
    ) -> Callable[[ToolId], bool]:
        """Return what tells whether a list that is made now has a tool. A call waits for the answer, so what stays as
        long as the list does is worked out once. `is_own`: the list is of this policy."""

        @cache
        def fixed() -> tuple[frozenset[ToolId], int]:
            return frozenset(self._pinned(profile)), self._left(profile, policy)

        read_at, used, chosen = -inf, frozenset[ToolId](), frozenset[ToolId]()

        def fits(tool: ToolId) -> bool:
            nonlocal read_at, used, chosen
            if is_own and self._is_in_newer(profile, policy, tool):
                return True
            if tool in used and self._recorder.now() - read_at < FRESH_S:
                return tool in chosen
            usages = self._read_usage(profile)
            if all(each.tool != tool for each in usages):
                return False  # nothing has changed for it
            pinned, left = fixed()
            ranked = self._rank_use(profile, usages, listed, pinned)
            share = self._learned.named_share() if policy == "frozen" else 0.0
            chosen = frozenset(split_list(ranked, left, share, self._catalog.tokens, self._named.cost)[0])
            used, read_at = frozenset(each.tool for each in usages), self._recorder.now()
            return tool in chosen

        return fits

    def _is_in_newer(self, profile: Profile, policy: Policy, tool: ToolId) -> bool:
        """Tell whether the current list has a tool: the tools, the settings or what was learned have changed since an
        older one was made."""
        known = self._views.get((profile.key, policy)) if self._version == self._catalog.version else None
        return tool in (known or self.preview(profile, policy)).shown

    def _keeps_back(
        self, profile: Profile, policy: Policy, fits: Callable[[ToolId], bool],
        order: Callable[[], tuple[ToolId, ...]], tool: ToolId,
    ) -> int:  # fmt: skip
        """Return the tokens that a growing list keeps free, if they are why it lacks a tool. `order`: how the tools
        competed for it."""
        if policy != "growing" or not (fits(tool) or tool in self._split(profile, "frozen", order())[0]):
            return 0
        return self._left(profile, "frozen") - self._left(profile, policy)

    def _digest_inputs(self, profile: Profile, policy: Policy) -> str:
        """Return a digest of everything a list is made of, except usage, which only a new epoch brings in."""
        settings = self._config.settings
        parts = (
            profile.key, policy, profile.list_tokens, profile.about, profile.pin, settings.pin, profile.servers,
            settings.list_whole, settings.list_fill,
        )  # fmt: skip
        digest = hashlib.sha256("".join(map(repr, parts)).encode())
        if (learned := self._learned.prior()[0]) and policy != "full":
            digest.update(b"learned %d" % learned)
        for _, definition in self._own(profile):
            digest.update(bytes(definition))
        digest.update(self._digest_tools(profile))
        if pages := self._policy.reach(profile).page_servers:
            digest.update("\n".join(sorted(pages)).encode())
            for tool in self._for_pages(profile):
                digest.update(f"\n{tool.id} {tool.schema_hash}".encode())
        return digest.hexdigest()

    def _digest_tools(self, profile: Profile) -> bytes:
        """Return a digest of the tools that a profile finds; made once while none of them changes."""
        version, known = self._digests.get(profile.key, (-1, b""))
        if version == self._catalog.version:
            return known
        reach = self._policy.reach(profile)
        digest = hashlib.sha256("\n".join(self._pinned(profile)).encode())
        for name in sorted(filter(reach.admits, self._catalog.upstreams())):
            if reach.denies_some(name):
                found = filter(reach.finds, self._catalog.in_order(name))
                digest.update("".join([f"{tool.id} {tool.schema_hash}\n" for tool in found]).encode())
            else:
                digest.update(self._catalog.digest(name))
        known = digest.digest()
        self._digests[profile.key] = (self._catalog.version, known)
        return known

    def _pinned(self, profile: Profile) -> list[ToolId]:
        pins = self._catalog.pins((*self._config.settings.pin, *profile.pin))
        finds = self._policy.reach(profile).finds
        return [tool for tool in pins if (found := self._catalog.get(tool)) and finds(found)]

    def _own(self, profile: Profile, *, is_whole: bool = False) -> list[tuple[ToolId, Raw]]:
        reach = self._policy.reach(profile)
        unlisted = sum(map(reach.admits, self._unlisted()))
        return own_tools.definitions(
            self._catalog.count_tools(reach), reach.bridges, trusts_some=reach.trusts_some, unlisted=unlisted,
            is_whole=is_whole, for_models=profile.shows_pages or bool(reach.page_servers),
        )  # fmt: skip

    def _ranked(self, profile: Profile) -> tuple[ToolId, ...]:
        """Return the tools in the order in which they compete for the budget: first by what was learned and by usage,
        then by relevance to the profile's description and to recorded tasks, then by what is needed at first."""
        competes, key = self._competing(profile)

        def is_there(tool: ToolId) -> bool:
            found = self._catalog.get(tool)
            return found is not None and competes(found)

        expected = self._expected(profile, [each for each in self._read_usage(profile) if is_there(each.tool)])
        lines = self._read_lines(profile)
        relevant = self._rank(lines) if lines else ()
        fills = self._config.settings.list_fill and self._prior().fill
        first = self._first.order(competes, profile.list_tokens, key) if fills else ()
        ranked = tuple(dict.fromkeys((*filter(is_there, (*expected, *relevant)), *first)))
        return self._pages_first(profile, ranked, competes)

    def _pages_first(
        self, profile: Profile, ranked: tuple[ToolId, ...], competes: Callable[[Tool], bool]
    ) -> tuple[ToolId, ...]:
        """Put tools with pages first where the client shows pages, for it shows those of listed tools alone. They come
        first for a part of the list; a server may have any number of them."""
        if not profile.shows_pages:
            return ranked
        places = {tool: place for place, tool in enumerate(ranked)}
        servers = [name for name in self._catalog.upstreams() if name in self._policy.reach(profile).page_servers]
        paged = [
            tool.id
            for name in servers for tool in self._catalog.in_order(name)
            if apps.pages_of(tool.definition) and competes(tool)
        ]  # fmt: skip
        paged.sort(key=lambda tool: places.get(tool, len(places)))
        first = fill_budget(paged, self._catalog.tokens, int(PAGES_SHARE * profile.list_tokens))
        return tuple(dict.fromkeys((*first, *ranked, *paged)))

    def _competing(self, profile: Profile) -> tuple[Callable[[Tool], bool], Hashable]:
        """Return what tells whether a tool competes for the budget of a list, and what that depends on besides the
        catalog."""
        left_out = frozenset({*self._pinned(profile), *self._read_failing()})
        reach = self._policy.reach(profile)
        return lambda tool: tool.id not in left_out and reach.finds(tool), (reach, left_out)

    def _read_lines(self, profile: Profile) -> tuple[str, ...]:
        """Return the words that tools of a list are relevant to."""
        return tuple(line for line in (profile.about, *self._recorder.tasks(5, profile.name)) if line.strip())

    def _read_usage(self, profile: Profile) -> list[Usage]:
        return self._catalog.count_under_new_names(self._recorder.usage_of(profile.name))

    def _read_failing(self) -> set[ToolId]:
        return set(map(self._catalog.name_now, self._recorder.failing()))

    def _prior(self) -> Prior:
        """Return what was learned about lists; what holds without learning if there is nothing, or it is damaged."""
        self._imported.refresh()
        if learned := self._learned.prior()[1]:
            with suppress(msgspec.MsgspecError):
                return msgspec.json.decode(learned, type=Prior)
        figures = self._imported.lists
        return Prior({}, figures.size_penalty, figures.fill) if figures is not None else Prior()

    def _expected(self, profile: Profile, usages: Sequence[Usage]) -> list[ToolId]:
        """Order tools by expected need per token, or by usage alone if nothing was learned. What was imported counts as
        some calls more, and takes at most half a list for one server."""
        prior = self._prior()
        imported = self._imported.usage()
        every = (*usages, *imported.values())
        ordered = order_tools(prior, every, self._catalog.tokens, self._recorder.now(), HALF_LIFE_S)
        if not imported:
            return ordered
        own = {*prior.need, *(each.tool for each in usages)}

        def upstream_of(tool: ToolId) -> str:
            found = self._catalog.get(tool)
            return found.upstream if found is not None else ""

        return leave_room(ordered, own, upstream_of, self._catalog.tokens, int(MOST_OF_ONE * profile.list_tokens))

    def shows_all(self, profile: Profile, policy: Policy) -> bool:
        """Tell whether the list holds every tool of the profile that is known."""
        return policy == "full" or (self._config.settings.list_whole and bool(self._fitting_whole(profile)))

    def _pays_whole(self, profile: Profile, tokens: int) -> bool:
        """Tell whether all tools of a profile fit so many tokens, and are not too many for some clients."""
        if not self._config.settings.list_whole or tokens <= profile.list_tokens:
            return False
        return 0 < len(self._fitting_whole(profile, tokens)) <= MOST_WHOLE

    def _fitting_whole(self, profile: Profile, budget: int | None = None) -> list[ToolId]:
        """Return all tools of a profile if they fit a budget beside our own, its own budget if None; else []."""
        reach = self._policy.reach(profile)
        own = self._own(profile, is_whole=True)
        left = profile.list_tokens if budget is None else budget
        left -= sum(estimate(bytes(one).decode()) for _, one in own)
        if sum(self._catalog.count_tools(reach).values()) > left:
            return []  # each takes a token at least
        found: list[ToolId] = []
        for tool in filter(reach.finds, self._catalog.tools()):
            left -= self._catalog.tokens(tool.id)
            if left < 0:
                return []
            found.append(tool.id)
        return found

    def _left(self, profile: Profile, policy: Policy) -> int:
        """Return the tokens that a list has for tools beside our own and pinned ones."""
        left = profile.list_tokens - sum(estimate(bytes(one).decode()) for _, one in self._own(profile))
        left -= sum(map(self._catalog.tokens, self._pinned(profile)))
        if policy == "growing":
            learned = self._learned.base()
            kept = int((1.0 - BASE_SHARE) * profile.list_tokens)
            left = left - kept if learned is None else min(learned, left)
        return left

    def _split(self, profile: Profile, policy: Policy, ranked: Sequence[ToolId]) -> tuple[list[ToolId], list[ToolId]]:
        """Return the tools that a list defines besides our own, and those that it only names."""
        if policy == "full":
            return [tool.id for tool in filter(self._policy.reach(profile).finds, self._catalog.tools())], []
        if self._config.settings.list_whole and (whole := self._fitting_whole(profile)):
            return whole, []
        share = self._learned.named_share() if policy == "frozen" else 0.0
        left = self._left(profile, policy)
        defined, named = split_list(ranked, left, share, self._catalog.tokens, self._named.cost)
        return [*self._pinned(profile), *defined], named

    def _write(
        self, profile: Profile, policy: Policy, tools: Sequence[ToolId], named: Sequence[ToolId], era: Era
    ) -> bytes:
        """Return the definitions of these tools, our own among them, as a JSON array for clients of an era. Our own
        name the tools that are `named`."""
        definitions = dict(self._own(profile, is_whole=self.shows_all(profile, policy)))
        self._named.write(definitions, named, self._policy.reach(profile))
        pinned, reach = set(self._pinned(profile)), self._policy.reach(profile)
        for one in tools:
            if (tool := self._catalog.get(one)) is not None:
                mark = {versions.ALWAYS_LOAD: True} if one in pinned else {}
                definitions[one] = self._catalog.definition(tool, mark | self._page_meta(reach, tool), era)
        more = [tool for tool in self._for_pages(profile) if tool.id not in tools]
        for tool in more:
            definitions[tool.id] = self._catalog.definition(tool, apps.write_meta(tool.definition, "app"), era)
        written = (*tools, *(tool.id for tool in more))
        return b"[" + b",".join(bytes(definitions[one]) for one in written if one in definitions) + b"]"

    def _page_meta(self, reach: Reach, tool: Tool) -> dict[str, Any]:
        """Return what the list says of pages in the `_meta` of a tool, where that is not what its server says.

        A page may call each tool of the same connection whose visibility holds `app`, as it does where nothing is said.
        Behind us all servers are one connection, so the tools of servers without pages are for models alone. Where
        several have pages, all are: nobody can tell whose page calls. A client that does not show pages gets what
        servers with pages say of their own tools.
        """
        shows_pages, servers = reach.profile.shows_pages, reach.page_servers
        is_only = servers == {tool.upstream}
        if tool.upstream not in servers:
            return apps.write_meta(tool.definition, "model") if servers or shows_pages else {}
        if not shows_pages:
            return {} if is_only else apps.close_widget(tool.definition)
        naming = [filter(reach.admits, self._catalog.naming(page)) for page in apps.pages_of(tool.definition)]
        pages = zip(apps.pages_of(tool.definition), map(list, naming), strict=True)
        is_own = all(apps.owner_of(page, each) == tool.upstream for page, each in pages)
        if is_own and is_only:
            return {}
        return apps.write_meta(tool.definition, *(() if is_only else ("model",)), keeps_page=is_own)

    def _for_pages(self, profile: Profile) -> list[Tool]:
        """Return the tools that the list has for the page of their server, whether or not models see them: hosts look
        up in the list what a page may call. What is for pages alone comes first; for what a search finds as well there
        are as many tokens as for the list."""
        reach = self._policy.reach(profile)
        if not profile.shows_pages or len(reach.page_servers) != 1:
            return []
        (server,) = reach.page_servers
        found = list(filter(reach.lets_pages_call, self._catalog.in_order(server)))
        alone = [tool for tool in found if not apps.is_for_model(tool.definition)]
        others = {tool.id: tool for tool in found if apps.is_for_model(tool.definition)}
        fitting = fill_budget(others, self._catalog.tokens, profile.list_tokens)
        return [*alone, *map(others.__getitem__, fitting)][:MOST_WHOLE]

    def _make(
        self, profile: Profile, policy: Policy, ranked: tuple[ToolId, ...] | None = None
    ) -> tuple[WorkingSet, tuple[ToolId, ...]]:
        """Make a list; return it with the order in which the tools competed for it."""
        if ranked is None:
            ranked = () if self.shows_all(profile, policy) else self._ranked(profile)
        split, named = self._split(profile, policy, ranked)
        chosen = (one for one in split if self._catalog.get(one) is not None)
        tools = tuple(sorted({*(own for own, _ in self._own(profile)), *chosen}))
        listing = self._write(profile, policy, tools, named, "modern")
        key = f"{profile.key}/{policy}"
        stored = self._recorder.working_set(key)
        epoch = stored.epoch + 1 if stored else 1
        return WorkingSet(
            key, epoch, tools, listing, self._recorder.now(), self._digest_inputs(profile, policy), tuple(named)
        ), ranked


def list_result(array: bytes, era: Era, ttl_ms: int) -> Raw:
    """Wrap a stored array into the result of `tools/list`; the whole list is one page."""
    if era == "legacy":
        return Raw(b'{"tools":' + array + b"}")
    head = b'{"resultType":"complete","tools":'
    meta = b',"_meta":{"%s":%s}' % (versions.META_SERVER_INFO.encode(), bytes(versions.IDENTITY_RAW))
    return Raw(head + array + b',"ttlMs":%d,"cacheScope":"private"' % ttl_ms + meta + b"}")
