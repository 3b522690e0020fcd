"""What a client searched for and then called, and the misses that this comes to, settled again as it goes on.

A pursuit is a run of searches and the calls that they lead to, up to the next search after one of these calls. All of
its searches are paid for once: the missed tools that they led to share the turns and tokens. One that led only to calls
of tools that were not missed costs no other tool anything; one that led to nothing is shared by all. A search that did
not show what was needed is a miss of its own kind, and bears a cost of its own only while no tool was found. Which
search failed is often known later than the search: a client may search for two things before it calls the first, or
search again in other words. So each event settles the pursuit anew, and what is on record follows (`Settled`).

A client may also search for a dozen things before it calls the first. So a call ends only the search that led to it:
the one that ranked the tool highest, and those that asked for the same in other words. Each other search stays one
after which no tool was called.

A look-up, which names tools and no task, is for these tools alone. It is a miss only if it found none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from foretool.storage.episodes import GAP_S, are_alike
from foretool.storage.records import Cause, Miss, ToolId

NEAR: Final = 3
"""A tool that a search ranks among so many is near to its words, although the answer did not show it."""


class RecentSearch(Struct):
    """One search through `discover_tools`, and whether it led to a call."""

    miss: Miss
    """The miss that it is if it did not show what was needed, without a cost."""
    tokens: int
    """Of its answer."""
    shown: frozenset[str]
    """Tools, and the URIs of skills."""
    ranked: tuple[ToolId, ...]
    """The tools that it ranked, best first, more than it showed."""
    is_used: bool = False
    """A tool that it showed was called, or asked for by name, or a skill read, or the client said that what it showed
    suffices."""
    names: frozenset[str] = frozenset()
    """What it asked for by name, if it named no task: it was for nothing else."""
    absent: frozenset[str] = frozenset()
    """Servers that were not there and could have had what it was for."""
    row: Miss | None = None
    """What is on record of it."""
    led_to: set[str] = field(default_factory=set)
    """The tools that were called, or asked for by name, because it showed them, and the skills that were read."""

    @property
    def id(self) -> int:
        return self.miss.discovery

    def may_be_for(self, tool: str) -> bool:
        """Return whether it may have been for a tool: it named a task, or this tool."""
        return not self.names or tool in self.names

    def blames(self, tool: str, server: str, cause: Cause) -> bool:
        """Return whether this search did not show the tool for the reason that refuses the call now: its server was
        absent, or a rule denied it."""
        if not self.may_be_for(tool):
            return False
        return server in self.absent or (cause == "denied" and self.miss.cause == "denied")

    def rank_of(self, tool: str) -> int:
        """Return the rank of a tool in this search; 0 if it ranked too low to be recorded."""
        return self.ranked.index(ToolId(tool)) + 1 if tool in self.ranked else 0

    def place_of(self, tool: str) -> int:
        """Return the rank of a tool in this search; one without a rank stands behind all others."""
        return self.rank_of(tool) or len(self.ranked) + 1

    def is_like(self, task: str) -> bool:
        """Return whether its task and this one are the same in other words."""
        return bool(task) and are_alike(self.miss.query, task)


class Need(Struct):
    """A call that showed which tool was needed: one that the client did not see, or one that did not run."""

    miss: Miss
    """The miss that it is, without a cost; of a tool that no search of the pursuit showed, as the list knows it."""
    is_found: bool
    """Whether a search of this pursuit showed the tool, or told of its server."""
    handle: str = ""
    """The conversation of the call; those that come from one share a pursuit."""
    is_recorded: bool = False
    """The call is over, and on record with its miss."""
    row: Miss | None = None
    """What is on record of it."""


class Settled(Struct, frozen=True):
    """The misses that have to be written, or changed on record, after an event."""

    revealed: tuple[Miss, ...] = ()
    """Misses that the call revealed which is over."""
    new: tuple[Miss, ...] = ()
    """Misses of searches that are known by now."""
    changed: tuple[tuple[Miss, Miss | None], ...] = ()
    """Misses on record, each with what it is by now; None where it turned out that nothing was missed."""


_NOTHING: Final = Settled()


class Pursuit(Struct):
    """A run of searches for one thing, with the calls that they led to."""

    searches: list[RecentSearch] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    is_over: bool = False
    """The client went on to something else, or its session ended or was idle: a search that led to no call was in vain,
    and the next one begins another pursuit."""

    @property
    def is_open(self) -> bool:
        """Whether a later call may still turn out to be what one of its searches was for."""
        return any(not search.is_used for search in self.searches)

    def goes_on(self, task: str, at: float, *, has_called: bool) -> bool:
        """Return whether a new search continues this pursuit. `has_called`: tools that it had not shown were called
        since its last search."""
        by_task = [search for search in self.searches if not search.names]
        if self.is_over or self.needs or not by_task or any(search.is_used for search in by_task):
            return False
        last = self.searches[-1].miss
        return at - last.at <= GAP_S and (not has_called or are_alike(last.query, task))

    def holds(self, discovery: int) -> bool:
        return any(search.id == discovery for search in self.searches)

    def has_missed(self, tool: ToolId, discovery: int, handle: str) -> bool:
        """Return whether a conversation has missed a tool before that a search found: once it knows a name, a client
        calls it again and again, which costs it nothing more."""
        key = (tool, discovery, handle)
        return any((need.miss.tool, need.miss.discovery, need.handle) == key for need in self.needs)

    def use(self, tools: Sequence[str], discovery: int = 0) -> bool:
        """Note that tools are called or asked for, or skills read, after a search if it is known which: the searches
        that led to them were not in vain. Return whether that changes anything."""
        used = [(search, tool) for tool in tools for search in self._led_to(tool, discovery)]
        changes = any(not search.is_used or tool not in search.led_to for search, tool in used)
        for search, tool in used:
            search.is_used = True
            search.led_to.add(tool)
        return changes

    def _led_to(self, tool: str, discovery: int) -> list[RecentSearch]:
        """Return the search that led to a call, and those that asked for the same and showed the tool too."""
        showed = [each for each in reversed(self.searches) if tool in each.shown or each.id == discovery]
        if not showed:
            return []
        led = min(showed, key=lambda each: (each.id != discovery, each.place_of(tool)))
        if led.is_used:  # a tool that is called again is called for the next search that put it first
            led = next((each for each in showed if not each.is_used and each.place_of(tool) == 1), led)
        return [led, *(each for each in showed if each.is_like(led.miss.query))]

    def recount(self, discovery: int, tokens: int) -> None:
        """Replace the estimated tokens of a search's answer by the counted ones."""
        for search in self.searches:
            if search.id == discovery:
                search.tokens = tokens

    def settle(self) -> Settled:
        """Return what has to be written so that the record agrees with what is known now."""
        revealed: list[Miss] = []
        new: list[Miss] = []
        changed: list[tuple[Miss, Miss | None]] = []
        for source, row in self._rows():
            if row == source.row:
                continue
            if source.row is not None:
                changed.append((source.row, row))
            elif row is not None:
                (revealed if isinstance(source, Need) else new).append(row)
            source.row = row
        return Settled(tuple(revealed), tuple(new), tuple(changed))

    def _rows(self) -> Iterator[tuple[RecentSearch | Need, Miss | None]]:
        """Yield each search and each recorded call with the miss that it is, None for one that is none."""
        failed = {id(need): search for need in self.needs if (search := self._failed_before(need)) is not None}
        payers = [need for need in self.needs if need.is_found or id(need) in failed]
        shares = self._share_costs(payers, failed)
        merged = {id(search) for search in failed.values()}
        for place, search in enumerate(self.searches):
            row = None if id(search) in merged else self._row_of(place, search)
            if row is not None and not payers:
                row = replace(row, turns=1, tokens=search.tokens)
            yield search, row
        for need in self.needs:
            if not need.is_recorded:
                continue
            miss = need.miss
            if (search := failed.get(id(need))) is not None:
                said = search.miss
                cause, change = _explain(search, miss.tool)
                miss = replace(
                    miss, noticed="search", cause=cause, change=change, query=said.query, of=said.of,
                    rank=search.rank_of(miss.tool), discovery=said.discovery, exposure=said.exposure,
                )  # fmt: skip
            turns, tokens = shares.get(id(need), (0, 0))
            yield need, replace(miss, turns=miss.turns + turns, tokens=tokens)

    def _share_costs(self, payers: Sequence[Need], failed: Mapping[int, RecentSearch]) -> dict[int, tuple[int, int]]:
        """Return the turns and tokens of searches that each of these calls bears, by its identity. `failed`: the search
        that was for a call in vain."""
        shared: dict[tuple[int, ...], list[RecentSearch]] = {}
        for search in self.searches:
            own = [id(each) for each in payers if each.miss.tool in search.led_to or failed.get(id(each)) is search]
            if own or not search.led_to:
                shared.setdefault(tuple(own or map(id, payers)), []).append(search)
        found = dict.fromkeys(map(id, payers), (0, 0))
        for bearers, searches in shared.items():
            turns, tokens = len(searches), sum(search.tokens for search in searches)
            for key, more, also in zip(bearers, _share(turns, len(bearers)), _share(tokens, len(bearers)), strict=True):
                found[key] = (found[key][0] + more, found[key][1] + also)
        return found

    def _failed_before(self, need: Need) -> RecentSearch | None:
        """Return the search that was for the tool of a call and did not show it, if no other search did: the latest of
        those that ranked the tool highest, or the only search there was."""
        if need.is_found:
            return None
        searches = [each for each in self.searches if each.may_be_for(need.miss.tool)]
        before = [each for each in reversed(searches) if not each.is_used and each.miss.at <= need.miss.at]
        ranked = [each for each in before if each.rank_of(need.miss.tool)]
        if ranked:
            return min(ranked, key=lambda each: each.rank_of(need.miss.tool))
        return before[0] if len(searches) == len(before) == 1 else None

    def _row_of(self, place: int, search: RecentSearch) -> Miss | None:
        if search.is_used:
            return None
        later = (need for need in self.needs if need.miss.at >= search.miss.at)
        needed = next((need for need in later if _was_for(search, need.miss)), None)
        if needed is not None:
            tool = needed.miss.tool
            cause, change = _explain(search, tool)
            return replace(
                search.miss, tool=tool, rank=search.rank_of(tool), recovered=needed.miss.recovered, cause=cause,
                change=change,
            )  # fmt: skip
        is_answered = self.is_over or place < len(self.searches) - 1
        return search.miss if search.miss.noticed == "nothing_found" or is_answered else None


class UnsettledPursuits:
    """The pursuits of a session about which more is known than is on record."""

    def __init__(self) -> None:
        self._pursuits: dict[int, Pursuit] = {}
        """By their identity."""

    def add(self, pursuit: Pursuit) -> None:
        """Note that an event has changed a pursuit."""
        self._pursuits[id(pursuit)] = pursuit

    def close(self, pursuit: Pursuit) -> None:
        """Note that the client no longer searches for what a pursuit was for."""
        pursuit.is_over = True
        self.add(pursuit)

    def settle(self) -> Settled:
        """Return what has to be written about them, and count them as recorded."""
        if not self._pursuits:
            return _NOTHING
        found = [pursuit.settle() for pursuit in self._pursuits.values()]
        self._pursuits.clear()
        return Settled(
            tuple(miss for each in found for miss in each.revealed),
            tuple(miss for each in found for miss in each.new),
            tuple(pair for each in found for pair in each.changed),
        )


def _was_for(search: RecentSearch, miss: Miss) -> bool:
    """Return whether a search in vain was for the tool that was called in the end: it nearly showed it, or asked for
    the same in other words. Other words, and no trace of the tool, speak of two needs."""
    if search.names:
        return miss.tool in search.names
    is_near = 0 < search.rank_of(miss.tool) <= NEAR and miss.tool not in search.shown
    return is_near or search.is_like(miss.query)


def _share(total: int, count: int) -> list[int]:
    """Share a number evenly; what is left goes to the first ones."""
    return [total // count + (place < total % count) for place in range(count)]


def _explain(search: RecentSearch, tool: str) -> tuple[Cause, str]:
    """Return why a search did not show a tool that is known by now, and what would have helped."""
    miss = search.miss
    if search.names or miss.cause not in ("unknown", "unused") or not search.shown:
        return miss.cause, miss.change
    return "rank", f"describe {tool} in the words of this task, or let foretool learn from it"
