"""The first page: what foretool saved, what it missed, what to do now, and the servers and clients behind that."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from foretool.desk.page.todo import Todo, read_todo
from foretool.desk.page.viewers import Viewer, admits, count_misses
from foretool.server import offline
from foretool.server.app import App
from foretool.server.config.errors import plural
from foretool.server.config.loader import Config
from foretool.server.ledger.conditions import ListedServer, list_servers
from foretool.server.ledger.story import UNKNOWN_TOOL, name_counted, say_counts
from foretool.server.recording.costs import (
    AT_ONCE,
    FEWEST,
    Costs,
    add_costs,
    by_client,
    read_costs,
    say_calls,
    say_saving,
)
from foretool.server.upstreams.memory import find_running
from foretool.storage.records import SHELL_CLIENT, MissCount, MissFilter, ProfileCount

DAYS: Final = 14
"""How many days the overview looks back, today included."""
MONTH: Final = 30
"""The same where a month is asked for."""
_LATEST: Final = 30_000
"""Of so many latest calls those of one profile are counted."""
_TOP: Final = 5
"""How many of the most missed tools are named."""
_Z: Final = 1.959964
"""Of a 95 % interval."""


class Day(Struct, frozen=True):
    """How many tools models needed on one day, by where they found them."""

    day: date
    listed: int
    """Calls that ran, of tools that the client's list defined."""
    named: int
    """The same of others that the client knew: the list or a hint had named them, or it had called them before."""
    found: int
    """The same of tools that the client did not see."""
    missed: int
    """Misses after which nothing was called."""

    @property
    def needs(self) -> int:
        return self.listed + self.named + self.found + self.missed


class MissedTool(Struct, frozen=True):
    """How often one tool, or a search for an unknown one, was missed."""

    name: str
    """In words, of searches with their cause."""
    count: int
    address: str
    """Below the page: of the miss if there is one, else of all of them."""


class OverviewPage(Struct, frozen=True):
    total: Costs
    bound: tuple[float, float] | None
    """The 95 % interval of the miss rate; None without a rate."""
    todo: Sequence[Todo]
    missed: Sequence[MissCount]
    """By tool and cause, the most frequent first."""
    days: Sequence[Day]
    """The oldest first, those without a call too; empty if nothing was ever needed."""
    servers: Sequence[ListedServer]
    """Those that are not well come first."""
    clients: Mapping[str, Costs]
    proxies: int
    tools: int
    full_tokens: int
    """Of the definitions of all tools."""
    listed_tokens: int
    """Of the list that a client starts with."""
    lists_all: bool
    """Whether that list has all tools."""
    waiting: int
    """Calls that no figure counts yet, because they are still being added up."""
    fewest: int = FEWEST
    """Tasks whose end is known from which rates are formed."""
    days_back: int = DAYS

    @property
    def saved(self) -> tuple[str, str]:
        """What was saved in the calls on record, as a rate only where rates are formed; before the first call what the
        first list saves of all tools: in a few words, and the sizes of both lists in a sentence."""
        words, sizes = say_saved(self.tools, self.full_tokens, self.listed_tokens, lists_all=self.lists_all)
        full, read = self.total.full_tokens, self.total.read_tokens
        if full and not self.lists_all:
            words = f"{full - read:,} tokens saved" if read < full else "Nothing"
        if self.total.saved is not None and not self.lists_all:
            words = _say_share(self.total.rated_full_tokens, self.total.rated_read_tokens)
        return words, sizes

    @property
    def misses(self) -> int:
        return sum(each.count for each in self.missed)

    @property
    def difference(self) -> str:
        """What models read, and what they would have read of all tools."""
        return say_saving(self.total)

    @property
    def headline(self) -> str:
        """How many misses there are, in words."""
        return plural(self.misses, "miss")

    @property
    def kinds(self) -> str:
        """How many misses are of tools, of searches and of wrong names, in words."""
        return say_counts(self.missed)

    @property
    def calls(self) -> str:
        """How many calls there were and what became of them, in words."""
        return say_calls(self.total.calls, self.total.refused, self.total.failed)

    @property
    def most_missed(self) -> list[MissedTool]:
        """What was missed most: tools and names, then searches, and last how many others there are."""
        groups: dict[tuple[str, str], list[MissCount]] = {}
        for each in self.missed:
            named = name_counted(each)
            groups.setdefault((named, "" if named else each.cause), []).append(each)
        found = (_describe_group(own) for own in groups.values())
        ordered = sorted(found, key=lambda each: (each.name.startswith(UNKNOWN_TOOL), -each.count))
        first, rest = ordered[:_TOP], ordered[_TOP:]
        if len(rest) > 1:
            rest = [MissedTool(f"{len(rest):,} others", sum(each.count for each in rest), "misses")]
        return first + rest

    @property
    def lost(self) -> int:
        """How many misses were not followed by any call."""
        return _count_lost(self.missed)

    @property
    def most(self) -> int:
        """The most needs of any day."""
        return max((day.needs for day in self.days), default=0)


def _describe_group(counts: Sequence[MissCount]) -> MissedTool:
    first, count = counts[0], sum(each.count for each in counts)
    name = name_counted(first) or f"{UNKNOWN_TOOL} ({first.cause})"
    query = {"tool": first.tool} if first.tool else {"cause": first.cause}
    address = f"misses/{first.last_id}" if count == 1 else f"misses?{urlencode(query)}"
    return MissedTool(name, count, address)


def say_saved(tools: int, full: int, listed: int, *, lists_all: bool) -> tuple[str, str]:
    """Say how much of all tools the list saves that a client starts with: in a few words, and in a sentence."""
    if not tools:
        return "Nothing yet", ""
    sizes = f"A client's first list takes {plural(listed, 'token')}; all {plural(tools, 'tool')} would take {full:,}."
    if lists_all:
        more = f", {listed - full:,} of them for foretool's own" if listed > full else ""
        return "Nothing", f"Your tools are so few that all are listed: {listed:,} tokens{more}."
    return _say_share(full, listed), sizes


def _say_share(full: int, read: int) -> str:
    share = round(100 * (full - read) / full)
    # No list is free, so nothing saves all of it.
    return f"{min(share, 99)}% saved" if share > 0 else "Nothing"


def wilson(hits: int, of: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson's score interval); None if `of` is 0."""
    if not of:
        return None
    share = min(hits / of, 1.0)
    middle = share + _Z * _Z / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + _Z * _Z / (4 * of * of))
    below = 1 + _Z * _Z / of
    return max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)


def read_overview(config: Config, viewer: Viewer, days_back: int = DAYS) -> OverviewPage:
    """Return what the first page shows. Raises `StorageError`."""
    now = time.time()
    days = _last_days(now, days_back)
    with offline.open_offline(config) as app:
        tools = [tool for tool in app.catalog.tools() if admits(config, viewer, tool.upstream)]
        full = sum(app.catalog.tokens(tool.id) for tool in tools)
        waiting = app.store.costs.waiting() if viewer.profile is None else 0
        waiting = waiting if waiting > AT_ONCE else 0
        since = _begin(days[0])
        rows = (
            read_costs(app.store, since, now, full, reads_rest=not waiting)
            if viewer.profile is None
            else count_profile(app.store.browsing.counts(viewer.profile, since, _LATEST))
        )
        wanted = MissFilter(since=since, profile=viewer.profile)
        total, missed = add_costs(rows, ""), count_misses(app.store, viewer, wanted)
        servers = [
            each for each in list_servers(app, config, {}) if viewer.sees_all or admits(config, viewer, each.name)
        ]
        view = offline.view(app, config.profiles.get(viewer.profile or "", config.profiles[""]))
        return OverviewPage(
            total=total,
            bound=wilson(total.rated_misses, total.rated_calls) if total.has_rates else None,
            todo=read_todo(app, config, viewer, servers, missed, view.told),
            missed=missed,
            days=_read_days(app, days, rows, wanted) if total.calls or missed else (),
            servers=sorted(servers, key=lambda each: (each.is_well, each.condition == "disabled")),
            clients=by_client(rows),
            proxies=len(find_running(app.store.serving.states())),
            tools=len(tools),
            full_tokens=full,
            listed_tokens=view.tokens,
            lists_all=all(tool.id in view.shown for tool in tools),
            waiting=waiting,
            days_back=days_back,
        )


def _last_days(now: float, count: int) -> list[date]:
    today = datetime.fromtimestamp(now).date()
    return [today - timedelta(days=back) for back in range(count - 1, -1, -1)]


def _begin(day: date) -> float:
    """Return when a day begins, in local time."""
    return datetime(day.year, day.month, day.day).astimezone().timestamp()


def _read_days(app: App, days: Sequence[date], rows: Sequence[Costs], wanted: MissFilter) -> list[Day]:
    found = []
    for day in days:
        calls = add_costs((row for row in rows if row.day == day.isoformat()), "")
        own = replace(wanted, since=_begin(day), until=_begin(day + timedelta(days=1)))
        counts = app.store.calls.count_misses(own)
        called = sum(each.recovered for each in counts if each.kind == "tool" and each.cause != "bypass")
        unseen = min(called, calls.hidden)
        listed = calls.calls - calls.refused - calls.hidden
        found.append(Day(day, listed, calls.hidden - unseen, unseen, _count_lost(counts)))
    return found


def _count_lost(counts: Sequence[MissCount]) -> int:
    return sum(each.count - each.recovered for each in counts)


def count_profile(counts: Iterable[ProfileCount]) -> list[Costs]:
    """Return what one profile did by day and client, the latest day first; tokens are not known of one profile."""
    found: dict[tuple[str, str], Costs] = {}
    for each in (one for one in counts if one.client != SHELL_CLIENT):
        day = datetime.fromtimestamp(each.at).astimezone().strftime("%Y-%m-%d")
        row = found.setdefault((day, each.client), Costs(day, each.client or "(unnamed)"))
        row.calls += each.calls
        row.hidden += each.hidden
        row.misses += each.misses
        row.discoveries += each.discoveries
        row.refused += each.refused
        row.failed += each.failed
    return sorted(found.values(), key=lambda each: (each.day, each.calls, each.client), reverse=True)
