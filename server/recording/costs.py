"""What lists, answers and hints have cost, by day and client: misses, discovery turns, and tokens before the model.

A turn is one request of the model: a call, or a discovery. At each turn it reads the list again, and every answer and
hint that came earlier in the same task. The full list would have been read at each call, and no discovery would have
been needed. A call counts there only if it reached a server: of those that foretool refused nobody knows whether they
would have been made. The list is as large as all tools were at that call (`Prices`); a program that calls and neither
lists nor searches, such as a script, would have read none of it. The log is added up part by part, by quarters of an
hour, so that nobody has to read all of it; see `storage.sql.costs.CostStore`. The same words mean the same in
`bench/learning/costs.py`.

`CostKeeper` adds up the log for `foretool status --stats` and the page in the background, a little at a time, in a
thread. The log of an earlier version is added up in the same way, from its start; until then those who ask read what is
left.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf, nextafter
from typing import Final

from foretool.server.config.errors import plural
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.engine import StorageError
from foretool.storage.episodes import GAP_S, PROMPT_S, cut_log
from foretool.storage.opening import open_store
from foretool.storage.places import StorePlace
from foretool.storage.records import (
    FAILED,
    PERIOD_S,
    SHELL_CLIENT,
    CatalogSize,
    CostEvent,
    LogPart,
)
from foretool.storage.sql.costs import CostCounts, CostSum
from foretool.storage.store import Store

_EVERYTHING: Final = 1 << 60
_LONGEST_S: Final = 21_600.0
"""A stretch that has lasted so long is added up, although the session goes on."""
AT_ONCE: Final = 10_000
"""So many calls that are not added up are read at once; of more it is said that they are still to come."""
FEWEST: Final = 50
"""Tasks from which rates are formed at the fewest: of fewer, a few odd ones make any rate."""
_FOUND: Final = 5
"""Definitions that a client's own search loads: those of Anthropic's tool search load three to five."""
_UNNAMED: Final = "(unnamed)"
"""A client that says no name."""
UNKNOWN: Final = "(unknown)"
"""The client of what belongs to no session on record, such as a prompt that reached no running proxy."""

Row = tuple[str, str]
"""Day and client."""
Quarter = tuple[int, str]
"""Number of a quarter of an hour, and client."""


class Costs(CostCounts):
    """What the tasks of one client took on one day."""

    day: str
    """As `2026-11-22`, in local time; "" for a sum of days."""
    client: str
    own_search_tokens: int = 0
    """What a client with a search of its own would have read for these tasks, as `estimate_own_search` says."""

    @property
    def sent(self) -> int:
        """Calls that reached a server."""
        return self.calls - self.refused

    @property
    def has_rates(self) -> bool:
        return self.rated_tasks >= FEWEST

    @property
    def miss_rate(self) -> float | None:
        """The share of calls that missed; None where rates say nothing."""
        return self.rated_misses / self.rated_calls if self.has_rates else None

    @property
    def saved(self) -> float | None:
        """The share of the full list's tokens that was not read; below 0 where foretool cost more. None where rates say
        nothing."""
        return self._saved_of(self.rated_full_tokens)

    @property
    def saved_of_own_search(self) -> float | None:
        """The share of `own_search_tokens` that was not read; below 0 where foretool cost more. None where rates say
        nothing."""
        return self._saved_of(self.own_search_tokens)

    def _saved_of(self, tokens: int) -> float | None:
        return 1.0 - self.rated_read_tokens / tokens if self.has_rates and tokens else None

    def per_task(self, rated: int) -> float | None:
        """Return a count of rated tasks per task; None where rates say nothing."""
        return rated / self.rated_tasks if self.has_rates else None


def say_calls(calls: int, refused: int, failed: int) -> str:
    """Say how many calls there were, and what became of them: `15 calls (3 refused, 4 failed)`."""
    parts = [f"{refused:,} refused"] if refused else []
    parts += [f"{failed:,} failed"] if failed else []
    return plural(calls, "call") + (f" ({', '.join(parts)})" if parts else "")


def say_saving(costs: Costs) -> str:
    """Say what models read of foretool, what they would have read of all tools in the same calls, and the difference.
    With all tools before it a model need not search, and makes no call that foretool alone refuses, so these count on
    our side alone; what was read at refused calls is their part of all turns."""
    gained = costs.full_tokens - costs.read_tokens
    outcome = f"foretool saved {gained:,}" if gained >= 0 else f"foretool cost {-gained:,} more"
    searches = f" and {plural(costs.discoveries, 'search')}" if costs.discoveries else ""
    alone = ", and no search" if costs.discoveries else ""
    reached = f"{'call that' if costs.sent == 1 else 'calls that'} reached a server" if costs.refused else ""
    same = f"the {costs.sent:,} {reached}" if reached else f"the same {'call' if costs.calls == 1 else 'calls'}"
    at_refused = round(costs.read_tokens * costs.refused / max(costs.calls + costs.discoveries, 1))
    refused = f", about {at_refused:,} of them at {plural(costs.refused, 'refused call')}" if at_refused else ""
    rate = ""
    if costs.saved is not None:
        share = f"{costs.saved:.1%} less" if costs.saved >= 0 else f"{-costs.saved:.1%} more"
        rate = f" Over {plural(costs.rated_tasks, 'task')} whose end is known it is {share}."
    return (
        f"In {plural(costs.calls, 'call')}{searches} models read about {plural(costs.read_tokens, 'token')} of lists,"
        f" answers and hints{refused}. With all tools listed as they were then{alone}, {same} would have read"
        f" {costs.full_tokens:,}: {outcome}.{rate}"
    )


def add_costs(rows: Iterable[Costs], client: str) -> Costs:
    total = Costs("", client)
    for row in rows:
        total.add(row)
        total.own_search_tokens += row.own_search_tokens
    return total


def read_costs(store: Store, since: float, now: float, full: int, *, reads_rest: bool = True) -> list[Costs]:
    """Return the costs since a time by day and client, the latest day first. `full`: tokens of the list of all tools
    today, with which calls are priced where none is on record; `reads_rest`: whether to read what is not added
    up, of which there may be much after an upgrade.

    What is added up already is read as it is; the rest of the log is read itself, so this serves commands and never the
    request path. Times count by quarters of an hour.
    """
    with store.snapshot():
        rest = add_up(store, store.costs.part(_EVERYTHING, since - GAP_S), None, now)[0] if reads_rest else []
        first = store.costs.first_size()
        sums = [*store.costs.sums(since), *(each for each in rest if each.period >= since // PERIOD_S)]
    price = first.tokens if first is not None else full
    found: dict[Row, Costs] = {}
    for each in (one for one in sums if one.client != SHELL_CLIENT):
        key = datetime.fromtimestamp(each.period * PERIOD_S).astimezone().strftime("%Y-%m-%d"), each.client
        row = found.setdefault(key, Costs(*key))
        row.add(each)
        row.full_tokens += price * (each.calls - each.refused - each.priced)
        row.rated_full_tokens += price * (each.rated_calls - each.rated_refused - each.rated_priced)
    return sorted(found.values(), key=lambda each: (each.day, each.calls, each.client), reverse=True)


class Prices:
    """How many tokens a list of all tools took at each time."""

    def __init__(self, sizes: Sequence[CatalogSize]) -> None:
        self._times = [size.at for size in sizes[1:]]
        self._tokens = [size.tokens for size in sizes]

    def at(self, time: float) -> int | None:
        """Return the tokens of all tools at a time; None where that is not on record."""
        return self._tokens[bisect_right(self._times, time)] if self._tokens else None


def count_shell_calls(store: Store, now: float) -> int:
    """Return how many calls on record were made by `foretool call`, which all other figures leave out."""
    with store.snapshot():
        reads_rest = store.costs.waiting() <= AT_ONCE
        rest = add_up(store, store.costs.part(_EVERYTHING, GAP_S), None, now)[0] if reads_rest else []
        return sum(each.calls for each in (*store.costs.sums(0.0), *rest) if each.client == SHELL_CLIENT)


def estimate_own_search(rows: Iterable[Costs], names: int, tokens: float) -> None:
    """Set what each row would have taken in a client that shows the names of all tools at each turn, spends one turn of
    each task on a search of its own, and has the definitions that this search finds before the model from then on.

    `names`: tokens of the names of all tools; `tokens`: those of a definition in the mean.
    """
    for row in rows:
        sent = row.rated_calls - row.rated_refused
        row.own_search_tokens = names * (sent + row.rated_tasks) + round(_FOUND * tokens * sent)


def add_next(store: Store, now: float, most: int) -> bool:
    """Add up the next `most` calls of the log and what belongs to them; return whether more of it waits."""
    part = store.costs.part(most)
    if not part.turns:
        return False
    before = max(min(now, part.until or now) - GAP_S, part.finished)
    sums, unfinished = add_up(store, part, before, inf)
    return store.costs.add(part, sums, unfinished, before) and part.until is not None


def add_up(store: Store, part: LogPart, before: float | None, now: float) -> tuple[list[CostSum], dict[str, float]]:
    """Return what the finished stretches of a part come to, and since when each other session is in an unfinished one.

    A stretch is what one session does without a pause of `GAP_S`, so tasks end with it. It is finished if its last turn
    came `before` a time, or if it is longer than `_LONGEST_S`. Without `before` every stretch counts as finished, but
    the last task of one that goes on `now` has no known end.
    """
    sessions: dict[str, list[CostEvent]] = defaultdict(list)
    for turn in part.turns:
        sessions[turn.session].append(turn)
    clients = store.costs.clients(sessions)
    moments = [turn.at for turn in part.turns]
    prices = Prices(store.costs.sizes(min(moments), max(moments)) if moments else ())
    begins: dict[str, list[float]] = defaultdict(list)
    for episode in cut_log(part.events, part.prompts, (), inf):
        if episode.calls:
            begins[session_of(episode.key)].append(episode.at)
    ended = store.sessions.ended(sessions) if before is None else frozenset[str]()
    found: dict[Quarter, CostSum] = {}
    unfinished: dict[str, float] = {}
    for key, turns in sessions.items():
        client = (clients[key] or _UNNAMED) if key in clients else UNKNOWN
        for stretch in _stretches(sorted(turns, key=_order)):
            first, last = stretch[0].at, stretch[-1].at
            # What follows an unfinished stretch goes on as well.
            if key in unfinished or (before is not None and last >= before and last - first < _LONGEST_S):
                unfinished.setdefault(key, first)
                continue
            own = sorted(at for at in begins[key] if first - PROMPT_S <= at <= last)
            listed = 0 if stretch[0].kind == "list" else store.costs.last_list(key, first)
            goes_on = before is None and key not in ended and now - last <= GAP_S
            _add_stretch(found, client, stretch, own, listed, _rated_until(stretch, own, goes_on=goes_on), prices)
    return list(found.values()), unfinished


def _stretches(turns: Sequence[CostEvent]) -> Iterator[list[CostEvent]]:
    """Cut the turns of a session, which are in order, where it pauses."""
    stretch: list[CostEvent] = []
    for turn in turns:
        if stretch and turn.at - stretch[-1].at > GAP_S:
            yield stretch
            stretch = []
        stretch.append(turn)
    yield stretch


def session_of(episode: str) -> str:
    """Return the key of the session in the key of an episode (`storage.episodes`)."""
    return episode.partition("/")[0].partition(":")[0]


def _order(turn: CostEvent) -> tuple[float, bool]:
    # What a model was shown came before what it did at the same instant.
    return turn.at, turn.kind not in ("list", "hint")


def _rated_until(turns: Sequence[CostEvent], begins: Sequence[float], *, goes_on: bool) -> float:
    """Return until when the turns of a stretch belong to tasks whose end is known: to the last call, because nobody
    knows what searches after it were for, or to the beginning of a task that may go on."""
    if not begins:
        return -inf
    if goes_on:
        return begins[-1]
    return nextafter(max((turn.at for turn in turns if turn.kind == "call"), default=-inf), inf)


def _add_stretch(
    found: dict[Quarter, CostSum], client: str, turns: Sequence[CostEvent], begins: Sequence[float], listed: int,
    rated_until: float, prices: Prices,
) -> None:  # fmt: skip
    """Add what happened in one stretch of a session, in order.

    `begins`: when its tasks began; `listed`: tokens of the list that the session had before; `rated_until`: what
    happened before this time belongs to tasks whose end is known.
    """
    for at in begins:
        row = _sum_of(found, at, client)
        row.tasks += 1
        row.rated_tasks += at < rated_until
    said = task = 0
    reads = listed > 0  # who neither lists nor searches would have read no list of all tools
    for turn in turns:
        row = _sum_of(found, turn.at, client)
        is_rated = bool(begins) and begins[0] <= turn.at < rated_until
        if (place := bisect_right(begins, turn.at)) != task:
            # What was said before the first task was said for it.
            task, said = place, 0 if task else said
        if turn.kind == "list":
            listed, reads = turn.tokens, True
        elif turn.kind == "miss":
            row.misses += 1
            row.rated_misses += turn.hidden and is_rated
        elif turn.kind == "hint":
            said += turn.tokens
            row.said_tokens += turn.tokens
        else:
            row.list_tokens += listed
            row.read_tokens += listed + said
            row.rated_read_tokens += is_rated * (listed + said)
            if turn.kind == "call":
                is_hidden = turn.hidden and turn.outcome != "refused"
                row.calls += 1
                row.refused += turn.outcome == "refused"
                row.failed += turn.outcome in FAILED
                row.hidden += is_hidden
                row.rated_calls += is_rated
                row.rated_refused += is_rated and turn.outcome == "refused"
                row.rated_hidden += is_rated and is_hidden
                price = prices.at(turn.at) if reads else 0
                if turn.outcome != "refused" and price is not None:
                    row.priced += 1
                    row.full_tokens += price
                    row.rated_priced += is_rated
                    row.rated_full_tokens += is_rated * price
            else:
                reads = True
                row.discoveries += 1
                row.rated_discoveries += is_rated
                row.said_tokens += turn.tokens
                said += turn.tokens


def _sum_of(found: dict[Quarter, CostSum], at: float, client: str) -> CostSum:
    key = int(at // PERIOD_S), client
    return found.setdefault(key, CostSum(*key))


def by_client(rows: Sequence[Costs]) -> Mapping[str, Costs]:
    """Return the sum of the days of each client, the one with most calls first."""
    names = dict.fromkeys(row.client for row in rows)
    sums = {name: add_costs((row for row in rows if row.client == name), name) for name in names}
    return dict(sorted(sums.items(), key=lambda each: -each[1].calls))


SETTLED_S: Final = 60.0
"""A proxy that has just started has other things to do."""
EVERY_S: Final = 600.0
"""Pause between two runs; of several proxies that share a store, one runs."""
PART: Final = 500
"""Calls that are added up at once, which takes some 20 ms of Python."""
PAUSE_S: Final = 0.2
"""Between two parts, so that calls get their turn."""


class CostKeeper(BackgroundWork):
    """Adds up the costs of new records in the background; housekeeping calls `tick` about once a second."""

    def __init__(self, store: Store, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._store = store
        self._clock = clock
        self._due = clock() + SETTLED_S
        self._has_turn = False
        """A run has failed, and it is still for this proxy to do it."""

    def tick(self) -> None:
        """Start to add up if it is time and no other proxy does it. Does nothing for a store in memory, which is added
        up when it is read."""
        path, now = self._store.path, self._clock()
        is_due = now >= self._due or self.has_failed
        if not is_due or self.is_working or self._store.trouble or isinstance(path, str):
            return
        self._due = now + EVERY_S
        self.begin(self._add_up(path, now))

    async def _add_up(self, path: StorePlace, now: float) -> None:
        if not (self._has_turn or self._store.costs.take_turn(now, int(now + EVERY_S))):
            return
        self._has_turn = True
        while await asyncio.to_thread(_add, path, now):
            await asyncio.sleep(PAUSE_S)
        self._has_turn = False


def add_everything(path: StorePlace, pause_s: float) -> None:
    """Add up all that waits, part by part, unless another process does it; for a thread of a process that serves no
    clients."""
    with contextlib.suppress(StorageError), open_store(path) as store:
        now = time.time()
        if store.costs.take_turn(now, int(now + EVERY_S)):
            while add_next(store, time.time(), PART):
                time.sleep(pause_s)


def _add(path: StorePlace, now: float) -> bool:
    with open_store(path) as store:
        return add_next(store, now, PART)
