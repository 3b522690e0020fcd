"""What a client sees, and why: the list of each profile under each policy (DESIGN section 3).

A list is worked out once per epoch, kept byte for byte in the store, and served as it stands until the catalog changes,
the schedule comes round, or `foretool learn` has run. No request of a client moves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from foretool.retrieval.budget import fill_budget
from foretool.retrieval.list_growth import BASE_SHARE
from foretool.retrieval.tokens import estimate
from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import Profile
from foretool.server.config.settings import PolicyChoice
from foretool.server.methods import discover_tools
from foretool.server.protocol import versions
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Cause, ClientRecord, Era, Policy, ToolId, Usage, WorkingSet

HALF_LIFE_S: Final = 14 * 86_400.0
"""A tool not called for two weeks counts half."""

RELISTERS: Final = frozenset({"claude-code", "mcp-use", "goose", "opencode", "cline", "windsurf"})
"""Clients known to list again after `list_changed` in the legacy era, until the ledger knows better
(docs/clients.md has the sources)."""

RELIST_SHARE: Final = 0.5
"""A client that answered fewer of its announcements than this is not grown for."""


class Memory(Protocol):
    """The part of the store that exposure reads and writes."""

    def usage(self) -> list[Usage]: ...

    def tasks(self, limit: int) -> list[str]: ...

    def working_set(self, key: str) -> WorkingSet | None: ...

    def save_working_set(self, working_set: WorkingSet) -> bool: ...


class Why(Struct, frozen=True):
    """Why a tool is hidden, and what would have shown it."""

    cause: Cause
    rank: int
    of: int
    change: str


class View(Struct, frozen=True):
    """The list of one profile under one policy in one epoch."""

    profile: str
    policy: Policy
    epoch: int
    tools: tuple[ToolId, ...]
    """In the order of the list, our own two included."""
    shown: frozenset[ToolId]
    array: bytes
    """The JSON array of definitions, served as it stands."""
    tokens: int
    budget: int
    created_at: float
    order: Callable[[], tuple[ToolId, ...]] = tuple
    """The order in which tools competed for the budget, best first."""
    offline: frozenset[str] = frozenset()
    """Upstreams whose tools were not known when the list was made."""

    def why_hidden(self, tool: ToolId, upstream: str) -> Why:
        """For a tool that is not in `shown`."""
        ranked = self.order()
        rank = ranked.index(tool) + 1 if tool in ranked else 0
        if upstream in self.offline:
            change = f"none: the tools of {upstream!r} were not known yet, and are from now on"
            return Why("offline", rank, len(ranked), change)
        if rank:
            change = f"raise list_tokens over {self.budget}, or pin {tool}"
            return Why("budget", rank, len(ranked), change)
        return Why("rank", 0, len(ranked), f"pin {tool}, or let it be used: the working set follows usage")


class Exposures:
    """Makes views and keeps them for their epoch."""

    def __init__(
        self,
        catalog: Catalog,
        rank: Callable[[Sequence[str]], Sequence[ToolId]],
        memory: Memory,
        pins: Sequence[str],
        epoch_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`rank`: the best tools for some words, best first."""
        self.pins = tuple(pins)
        self.epoch_s = epoch_s
        self._catalog = catalog
        self._rank = rank
        self._memory = memory
        self._clock = clock
        self.prior: Callable[[], tuple[int, bytes]] = _unlearned
        """Number of the last learning run, and what it says of coming tasks (`retrieval.prior`)."""
        self.base: Callable[[], int | None] = _unknown
        """Tokens that a growing list begins with, besides our tools and pins, by what was learned (`retrieval.growth`);
        None where nothing was."""
        self._views: dict[tuple[str, Policy], View] = {}
        self._version = -1

    def view(self, profile: Profile, policy: Policy, offline: frozenset[str] = frozenset()) -> View:
        """The current list. Cheap unless an epoch has begun."""
        if self._version != self._catalog.version:
            self._views.clear()
            self._version = self._catalog.version
        key = (profile.name, policy)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._restored(profile, policy, offline)
        return view

    def forget(self) -> None:
        """Settings have changed: every list is looked at anew."""
        self._views.clear()

    def views(self) -> list[View]:
        return list(self._views.values())

    def advance(self) -> None:
        """Begin a new epoch on schedule: lists older than `epoch_s` are worked out anew when next asked for."""
        now = self._clock()
        due = [key for key, view in self._views.items() if self._is_over(view.created_at, now)]
        for key in due:
            del self._views[key]

    def allowed(self, profile: Profile, upstream: str) -> bool:
        return profile.servers == ("*",) or profile.admits(upstream)

    def grown(self, view: View, tools: Sequence[ToolId]) -> bytes:
        """The array of a list that grew: what stood there stays, byte for byte, the new tools follow."""
        extra = [bytes(self._catalog.definition(tool)) for one in tools if (tool := self._catalog.get(one))]
        if not extra:
            return view.array
        return b",".join([view.array[:-1], *extra]) + b"]" if len(view.array) > 2 else b"[" + b",".join(extra) + b"]"

    # -- making a list

    def _restored(self, profile: Profile, policy: Policy, offline: frozenset[str]) -> View:
        """The list as it was stored, if nothing it was made of has changed, else a new one."""
        key = f"{profile.name}/{policy}"
        inputs = self._inputs(profile, policy)
        stored = self._memory.working_set(key)
        now = self._clock()
        if stored is not None and stored.inputs == inputs and not self._is_over(stored.created_at, now):
            return self._viewed(profile, policy, stored, None, offline)
        ranked = self._ranked(profile) if policy != "full" else ()
        tools, listing = self._made(profile, policy, ranked)
        epoch = stored.epoch + 1 if stored else 1
        new = WorkingSet(key, epoch, tools, listing, now, inputs)
        if not self._memory.save_working_set(new):
            # Another proxy on this file was first; one list for all of them.
            theirs = self._memory.working_set(key)
            new = theirs if theirs is not None and theirs.inputs == inputs else new
        return self._viewed(profile, policy, new, ranked, offline)

    def _is_over(self, created_at: float, now: float) -> bool:
        return bool(self.epoch_s) and now - created_at >= self.epoch_s

    def _viewed(
        self,
        profile: Profile,
        policy: Policy,
        stored: WorkingSet,
        ranked: tuple[ToolId, ...] | None,
        offline: frozenset[str],
    ) -> View:
        tokens = sum(self._catalog.tokens(tool) for tool in stored.tools if tool not in names.OWN)
        own = sum(estimate(bytes(definition).decode()) for _, definition in self._own(profile))

        @cache
        def order() -> tuple[ToolId, ...]:
            # Only a miss asks for it; a list that was restored need not be ranked again for anything else.
            return ranked if ranked is not None else () if policy == "full" else self._ranked(profile)

        return View(
            profile.name, policy, stored.epoch, stored.tools, frozenset(stored.tools), stored.listing,
            tokens + own, profile.list_tokens, stored.created_at, order, offline,
        )  # fmt: skip

    def _inputs(self, profile: Profile, policy: Policy) -> str:
        """A digest of everything a list is made of but usage, which only a new epoch may bring in."""
        digest = hashlib.sha256()
        for part in (profile.name, policy, profile.list_tokens, profile.about, profile.pin, self.pins, profile.servers):
            digest.update(repr(part).encode())
        if (learned := self.prior()[0]) and policy != "full":
            digest.update(b"learned %d" % learned)
        pinned = self._pinned(profile)
        for tool in self._catalog.tools():
            if self.allowed(profile, tool.upstream):
                digest.update(f"{tool.id} {tool.schema_hash} {tool.id in pinned}\n".encode())
        return digest.hexdigest()

    def _pinned(self, profile: Profile) -> list[ToolId]:
        pins = self._catalog.pins((*self.pins, *profile.pin))
        return [tool for tool in pins if (found := self._catalog.get(tool)) and self.allowed(profile, found.upstream)]

    def _own(self, profile: Profile) -> list[tuple[ToolId, Raw]]:
        counts = self._catalog.upstreams()
        return discover_tools.definitions(
            {name: count for name, count in counts.items() if self.allowed(profile, name)}
        )

    def _ranked(self, profile: Profile) -> tuple[ToolId, ...]:
        """Tools in the order in which they compete for the budget: by what was learned and by usage, then by the
        profile's words and the tasks on record."""
        pinned = self._pinned(profile)
        usages = [each for each in self._memory.usage() if self._is_candidate(profile, each.tool, pinned)]
        expected = self._expected(usages)
        ranked = {tool: None for tool in expected if self._is_candidate(profile, tool, pinned)}
        lines = tuple(line for line in (profile.about, *self._memory.tasks(5)) if line.strip())
        if lines:
            for tool in self._rank(lines):
                if self._is_candidate(profile, tool, pinned):
                    ranked.setdefault(tool)
        return tuple(ranked)

    def _expected(self, usages: Sequence[Usage]) -> list[ToolId]:
        """Tools by what coming tasks will need, per token; by usage alone where nothing was learned."""
        # Not at the top: a list that is restored is served before any of this is wanted.
        from foretool.retrieval import list_prior

        known = list_prior.Prior()
        if learned := self.prior()[1]:
            with suppress(msgspec.MsgspecError):
                known = list_prior.loads(learned)
        return list_prior.order(known, usages, self._catalog.tokens, self._clock(), HALF_LIFE_S)

    def _is_candidate(self, profile: Profile, tool: ToolId, pinned: Sequence[ToolId]) -> bool:
        found = self._catalog.get(tool)
        return found is not None and tool not in pinned and self.allowed(profile, found.upstream)

    def _made(self, profile: Profile, policy: Policy, ranked: Sequence[ToolId]) -> tuple[tuple[ToolId, ...], bytes]:
        own = dict(self._own(profile))
        pinned = self._pinned(profile)
        if policy == "full":
            chosen = [tool.id for tool in self._catalog.tools() if self.allowed(profile, tool.upstream)]
        else:
            left = profile.list_tokens - sum(estimate(bytes(one).decode()) for one in own.values())
            left -= sum(self._catalog.tokens(tool) for tool in pinned)
            if policy == "growing":
                left = self._begins_with(profile, left)
            chosen = [*pinned, *fill_budget(ranked, self._catalog.tokens, left)]
        marked = {versions.ALWAYS_LOAD: True}
        definitions = dict(own)
        for one in chosen:
            if (tool := self._catalog.get(one)) is not None:
                definitions[one] = self._catalog.definition(tool, marked if one in pinned else None)
        tools = tuple(sorted(definitions))
        return tools, b"[" + b",".join(bytes(definitions[tool]) for tool in tools) + b"]"

    def _begins_with(self, profile: Profile, left: int) -> int:
        """Of the tokens that are left in a growing list, those that it may begin with."""
        learned = self.base()
        return left - int((1.0 - BASE_SHARE) * profile.list_tokens) if learned is None else min(learned, left)


def _unlearned() -> tuple[int, bytes]:
    return 0, b""


def _unknown() -> int | None:
    return None


def choose_policy(wanted: PolicyChoice, era: Era, client: str, ledger: ClientRecord | None) -> Policy:
    """The policy of one client. `auto`: grow only for legacy clients that were seen, or are known, to re-list."""
    if wanted != "auto":
        # Growing in the modern era breaks a MUST NOT of its specification, so only whoever asks for it gets it.
        return wanted
    if era == "modern":
        return "frozen"
    if ledger is not None and ledger.announced:
        return "growing" if ledger.relisted / ledger.announced >= RELIST_SHARE else "frozen"
    return "growing" if client.lower() in RELISTERS else "frozen"


def list_result(array: bytes, era: Era, ttl_ms: int) -> Raw:
    """The result of `tools/list` around a stored array; the whole list is one page."""
    if era == "legacy":
        return Raw(b'{"tools":' + array + b"}")
    head = b'{"resultType":"complete","tools":'
    meta = b',"_meta":{"%s":%s}' % (versions.META_SERVER_INFO.encode(), bytes(versions.IDENTITY_RAW))
    return Raw(head + array + b',"ttlMs":%d,"cacheScope":"private"' % ttl_ms + meta + b"}")
