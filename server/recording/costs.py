"""What lists, answers and hints have cost, by day and client: misses, discovery turns, and tokens before the model.

A turn is one request of the model: a call, or a discovery. At each turn it reads the list again, and every answer and
hint that came earlier in the same task. The full list would have been read at each call, and no discovery would have
been needed. The same words mean the same in `bench/learning/costs.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from foretool.storage.episodes import read_episodes
from foretool.storage.records import Turn
from foretool.storage.stores import Store

UNKNOWN = "(unknown)"
"""The client of what belongs to no session on record, such as a prompt that reached no running proxy."""

Row = tuple[str, str]
"""Day and client."""


class Costs(Struct):
    """What the tasks of one client took on one day."""

    day: str
    """As `2026-11-22`, in local time; "" for a sum of days."""
    client: str
    tasks: int = 0
    """Tasks that called a tool with success. A search that led to no call counts among the discoveries alone."""
    calls: int = 0
    hidden: int = 0
    """Calls of tools that the list lacked."""
    misses: int = 0
    """Tools that were needed and that neither the list nor a hint had shown."""
    discoveries: int = 0
    list_tokens: int = 0
    """Tokens of the list, counted at each turn."""
    said_tokens: int = 0
    """Tokens of answers and hints, counted once, when they came."""
    read_tokens: int = 0
    """Tokens of the list, answers and hints, counted at each turn in which they stood before the model."""
    full_tokens: int = 0
    """What the list of all tools would have taken, counted at each call."""

    @property
    def miss_rate(self) -> float | None:
        """Misses per call, 1 at most; None without calls."""
        return min(self.misses / self.calls, 1.0) if self.calls else None

    @property
    def saved(self) -> float | None:
        """The share of the full list's tokens that was not read; below 0 where foretool cost more. None without
        calls."""
        return 1.0 - self.read_tokens / self.full_tokens if self.full_tokens else None

    def per_task(self, count: int) -> float | None:
        """Return a count per task; None without tasks."""
        return count / self.tasks if self.tasks else None


def add_costs(rows: Iterable[Costs], client: str) -> Costs:
    """Return the sum of some rows."""
    total = Costs("", client)
    for row in rows:
        for name in Costs.__struct_fields__[2:]:
            setattr(total, name, getattr(total, name) + getattr(row, name))
    return total


def read_costs(store: Store, since: float, now: float, full: int) -> list[Costs]:
    """Return the costs since a time by day and client, the latest day first. `full`: tokens of the list of all tools.

    Reads the whole log of that time, so it serves commands and never the request path.
    """
    sessions: dict[str, list[Turn]] = defaultdict(list)
    for turn in store.sessions.turns(since):
        sessions[turn.session].append(turn)
    clients = {each.key: each.client or "(unnamed)" for each in store.sessions.recent()}
    begins: dict[str, list[float]] = defaultdict(list)
    for episode in read_episodes(store, now):
        if episode.calls and episode.at >= since:
            begins[session_of(episode.key)].append(episode.at)
    found: dict[Row, Costs] = {}
    for key, turns in sessions.items():
        _add_session(found, clients.get(key, UNKNOWN), sorted(turns, key=_order), sorted(begins[key]), full)
    return sorted(found.values(), key=lambda each: (each.day, each.calls, each.client), reverse=True)


def session_of(episode: str) -> str:
    """Return the key of the session in the key of an episode (`storage.episodes`)."""
    return episode.partition("/")[0].partition(":")[0]


def _order(turn: Turn) -> tuple[float, bool]:
    # What a model was shown came before what it did at the same instant.
    return turn.at, turn.kind not in ("list", "hint")


def _add_session(
    found: dict[Row, Costs], client: str, turns: Sequence[Turn], begins: Sequence[float], full: int
) -> None:
    """Add what happened in one session, in order. `begins`: when its tasks began."""
    for at in begins:
        _row(found, at, client).tasks += 1
    listed = said = task = 0
    for turn in turns:
        row = _row(found, turn.at, client)
        if (place := bisect_right(begins, turn.at)) != task:
            # What was said before the first task of a session was said for it.
            task, said = place, 0 if task else said
        if turn.kind == "list":
            listed = turn.tokens
        elif turn.kind == "miss":
            row.misses += 1
        elif turn.kind == "hint":
            said += turn.tokens
            row.said_tokens += turn.tokens
        else:
            row.list_tokens += listed
            row.read_tokens += listed + said
            if turn.kind == "call":
                row.calls += 1
                row.hidden += turn.hidden
                row.full_tokens += full
            else:
                row.discoveries += 1
                row.said_tokens += turn.tokens
                said += turn.tokens


def _row(found: dict[Row, Costs], at: float, client: str) -> Costs:
    key = datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d"), client
    if (row := found.get(key)) is None:
        row = found[key] = Costs(*key)
    return row


def by_client(rows: Sequence[Costs]) -> Mapping[str, Costs]:
    """Return the sum of the days of each client, the one with most calls first."""
    names = dict.fromkeys(row.client for row in rows)
    sums = {name: add_costs((row for row in rows if row.client == name), name) for name in names}
    return dict(sorted(sums.items(), key=lambda each: -each[1].calls))
