"""The tables `costs`, `costs_marks` and `costs_open`: what the log comes to, added up part by part; and
`catalog_tokens`: what all tools took at each time.

A call is recorded without touching these tables, so that it stays cheap. Records get their ids in the order in which
they are written, so ids say what is added up: a record that is written late, with an old time, is never left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from foretool.storage.records import PERIOD_S, CatalogSize, CostEvent, Event, LogPart, Prompt
from foretool.storage.sql.calls import first_call
from foretool.storage.sql.database import Database, Subject, encode_json
from foretool.storage.sql.discoveries import PROMPTS
from foretool.storage.sql.tables import Table, insert_into, take_turn


class CostCounts(Struct, kw_only=True):
    """The counts of which costs consist: tasks and calls, and the tokens that models read for them."""

    tasks: int = 0
    """Tasks that called a tool with success. A search that led to no call counts among the discoveries alone."""
    calls: int = 0
    refused: int = 0
    """Calls that did not run."""
    failed: int = 0
    """Calls that ran and came to nothing."""
    hidden: int = 0
    """Calls that ran, of tools that the list lacked."""
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
    """What a list of all tools would have taken as they were then, counted at each call that reached a server."""
    rated_tasks: int = 0
    """Those of the tasks whose end is known. Rates are formed from these tasks, and only where they are at least
    `recording.costs.FEWEST`: not from searches that no call followed, nor from what a client is about."""
    rated_calls: int = 0
    rated_refused: int = 0
    rated_hidden: int = 0
    rated_misses: int = 0
    """Calls of these tasks whose tool neither the list nor a hint had shown."""
    rated_discoveries: int = 0
    rated_read_tokens: int = 0
    rated_full_tokens: int = 0
    priced: int = 0
    """Calls for which it is on record what all tools took then."""
    rated_priced: int = 0

    def add(self, other: CostCounts) -> None:
        for name in COST_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COST_COUNTS: Final = CostCounts.__struct_fields__


class CostSum(CostCounts):
    """What one client did in one `PERIOD_S`, and what it cost. See `recording.costs.Costs`."""

    period: int
    """Number of the period since 1970."""
    client: str


_PROMPT_S: Final = 300.0
"""Prompts are read from this long before the first turn of a part."""
_OTHERS: Final = 4
"""Records of the other tables that a part holds at most, for each call that it may hold."""
_SUMS = Table("costs", CostSum)
_SIZES = Table("catalog_tokens", CatalogSize)
_TURNS: Final = {
    "exposures": "CASE WHEN reason IN ('hint', 'prompt', 'named') THEN 'hint' ELSE 'list' END, tokens, 0, ''",
    "discoveries": "'discovery', tokens, 0, ''",
    "calls": "'call', 0, hidden, outcome",
    "misses": "'miss', 0, CASE WHEN call > 0 THEN 1 ELSE 0 END, ''",
}
"""By table of the log: kind, tokens, hidden and outcome of its turns."""
_FINISHED: Final = "finished"
"""The mark that holds `LogPart.finished`."""
_TABLES: Final = {
    "list": "exposures", "hint": "exposures", "discovery": "discoveries", "call": "calls", "miss": "misses",
}  # fmt: skip
"""By kind of turn: its table."""
_ADD_OPEN: Final = insert_into("costs_open", ("session", "since", *_TURNS))
_EVENTS: Final = {
    "calls": "SELECT at, 'call', tool, outcome = 'ok', handle, session FROM calls"
    " WHERE id > ? AND id <= ? AND outcome <> 'refused'",
    "discoveries": "SELECT at, 'task', task, 1, handle, session FROM discoveries"
    " WHERE id > ? AND id <= ? AND task <> ''",
}
_ADD: Final = (
    f"{_SUMS.insert} ON CONFLICT (period, client) DO UPDATE SET "
    + ", ".join(f"{name} = costs.{name} + excluded.{name}" for name in COST_COUNTS)
)  # fmt: skip
_OF_DAY: Final = (
    "SELECT min(period), client, "  # noqa: S608  # constants
    + ", ".join(f"sum({name})" for name in COST_COUNTS)
    + " FROM costs WHERE period >= ? AND period < ? GROUP BY client"
)
_LAST_LIST: Final = (
    "SELECT tokens FROM exposures WHERE session = ? AND at <= ? AND reason NOT IN ('hint', 'prompt', 'named')"
    " ORDER BY id DESC LIMIT 1"
)


class CostStore(Subject):
    """The costs of the log by quarters of an hour, as `recording.costs` adds them up part by part."""

    def part(self, most: int, since: float = 0.0) -> LogPart:
        """Return the next part of the log that is not added up, with about `most` calls, as far as it is later than
        `since`."""
        if not since:
            with self._database.atomic():
                self._database.settle_writes(*_TURNS)
        with self._database.snapshot():
            return self._part(most, since)

    def _part(self, most: int, since: float) -> LogPart:
        marks, unfinished = self._marks(), self._unfinished()
        until = self._end_at(marks["calls"], most)
        turns: list[CostEvent] = []
        ends: dict[str, tuple[int, int]] = {}
        starts: dict[str, int] = {}
        for table, columns in _TURNS.items():
            done = marks[table]
            start = min((own[table] - 1 for own in unfinished.values()), default=done)
            if since:
                start = max(start, self._last_before(table, since))
            end = self._end_of(table, done, until, most)
            ends[table], starts[table] = (done, end), start
            query = f"SELECT session, at, {columns}, id FROM {table} WHERE id > ? AND id <= ?"  # noqa: S608
            for session, at, kind, tokens, hidden, outcome, id in self._database.each_row(query, (start, end)):
                if id <= done:
                    own = unfinished.get(session)
                    if own is None or at < own["since"] or id < own[table]:
                        continue
                turns.append(CostEvent(session, at, kind, tokens, bool(hidden), id, outcome))
        events = [
            Event(at, kind, text, bool(ok), handle, session)
            for table, query in _EVENTS.items()
            for at, kind, text, ok, handle, session in self._database.each_row(query, (starts[table], ends[table][1]))
        ]
        return LogPart(turns, events, self._prompts(turns), until, marks[_FINISHED], ends)

    def add(self, part: LogPart, sums: Sequence[CostSum], unfinished: Mapping[str, float], finished: float) -> bool:
        """Keep what a part comes to. `unfinished`: sessions whose turns from a time on come again with the next part;
        `finished`: the next `LogPart.finished`.

        Returns False, and keeps nothing, if another process has added up this part.
        """
        database = self._database
        with database.atomic():
            marks = self._marks()
            if any(marks[table] != done for table, (done, _) in part.ids.items()):
                return False
            database.run_all(_ADD, map(_SUMS.row, sums))
            database.run("DELETE FROM costs_open")
            database.run_all(_ADD_OPEN, _first_ids(part, unfinished))
            for table, (done, end) in {**part.ids, _FINISHED: (0, int(finished))}.items():
                count = "SELECT count(*) FROM calls WHERE id > ? AND id <= ?"
                added = database.rows(count, (done, end))[0][0] if table == "calls" else 0
                database.run(
                    "INSERT INTO costs_marks (name, done, count) VALUES (?, ?, ?) ON CONFLICT (name)"
                    " DO UPDATE SET done = excluded.done, count = costs_marks.count + excluded.count",
                    (table, end, added),
                )
        return True

    def waiting(self) -> int:
        """Return about how many calls are not added up yet."""
        done = self._marks()["calls"]
        newest = "SELECT max(id) FROM calls WHERE id > ?"
        return max(int(self._database.rows(newest, (done,))[0][0] or 0) - done, 0)

    def sums(self, since: float) -> list[CostSum]:
        """Return what is added up since a time, one sum for each day in local time and client."""
        first, last = self._database.rows(
            "SELECT min(period), max(period) FROM costs WHERE period >= ?", (int(since // PERIOD_S),)
        )[0]
        found: list[CostSum] = []
        while first is not None and first <= last:
            end = _next_day(first)
            for period, client, *counts in self._database.rows(_OF_DAY, (first, end)):
                found.append(CostSum(period, client, **dict(zip(COST_COUNTS, counts, strict=True))))
            first = end
        return found

    def sizes(self, first: float, last: float) -> list[CatalogSize]:
        """Return what all tools took from one time to another, the oldest first: what changed then, and what was so
        before. Before the first change on record it is what that says."""
        changes = _SIZES.find_all(self._database, "WHERE at > ? AND at <= ? ORDER BY at", (first, last))
        before = _SIZES.find(self._database, "WHERE at <= ? ORDER BY at DESC LIMIT 1", (first,))
        begin = before or self.first_size()
        return [begin, *changes] if begin is not None else []

    def first_size(self) -> CatalogSize | None:
        return _SIZES.find(self._database, "ORDER BY at LIMIT 1")

    def add_size(self, at: float, tokens: int) -> None:
        """Keep what all tools take from a time on, unless it is what they took before."""
        with self._database.atomic():
            before = _SIZES.find(self._database, "WHERE at <= ? ORDER BY at DESC LIMIT 1", (at,))
            if before is None or before.tokens != tokens:
                self._database.run(_SIZES.upsert("at"), _SIZES.row(CatalogSize(at, tokens)))

    def last_list(self, session: str, before: float) -> int:
        """Return the tokens of the list that a session had before a time; 0 if it had none."""
        row = self._database.row(_LAST_LIST, (session, before))
        return int(row[0]) if row else 0

    def clients(self, sessions: Iterable[str]) -> dict[str, str]:
        """Return the client of each of these sessions that is on record."""
        query = f"SELECT key, client FROM sessions WHERE key IN ({self._database.json_strings})"  # noqa: S608  # a constant
        return dict(self._database.rows(query, (encode_json(list(sessions)),)))

    def take_turn(self, now: float, until: int) -> bool:
        """Reserve adding up for one process until then; return False if another process has reserved it."""
        return take_turn(self._database, "adding_up_until", now, until)

    def _marks(self) -> dict[str, int]:
        """Return by table up to which record all is added up, and `LogPart.finished`."""
        found = dict(self._database.rows("SELECT name, done FROM costs_marks"))
        return {name: found.get(name, 0) for name in (*_TURNS, _FINISHED)}

    def _unfinished(self) -> dict[str, dict[str, Any]]:
        rows = self._database.rows(f"SELECT session, since, {', '.join(_TURNS)} FROM costs_open")  # noqa: S608
        return {session: dict(zip(("since", *_TURNS), rest, strict=True)) for session, *rest in rows}

    def _end_at(self, done: int, most: int) -> float | None:
        """Return the time of the last call of a part; None if the part has all calls."""
        row = self._database.row("SELECT at FROM calls WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?", (done, most - 1))
        return row[0] if row else None

    def _end_of(self, table: str, done: int, until: float | None, most: int) -> int:
        """Return the last id of a table that belongs to a part."""
        place = most if table == "calls" else _OTHERS * most
        query = f"SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"  # noqa: S608
        if (row := self._database.row(query, (done, place - 1))) is None:
            row = self._database.row(f"SELECT max(id) FROM {table} WHERE id > ?", (done,))  # noqa: S608
        end = int((row and row[0]) or done)
        if until is not None and table != "calls":
            before = f"SELECT id FROM {table} WHERE at <= ? ORDER BY at DESC LIMIT 1"  # noqa: S608
            found = self._database.row(before, (until,))
            end = min(end, max(done, found[0])) if found else done
        return end

    def _last_before(self, table: str, since: float) -> int:
        """Return an id up to which all records are older than a time, give or take those that were written late."""
        if table == "calls":
            return max(0, first_call(self._database, since) - 1)
        row = self._database.row(f"SELECT id FROM {table} WHERE at < ? ORDER BY at DESC LIMIT 1", (since,))  # noqa: S608
        return int(row[0]) if row else 0

    def _prompts(self, turns: Sequence[CostEvent]) -> list[Prompt]:
        if not turns:
            return []
        times = (min(turn.at for turn in turns) - _PROMPT_S, max(turn.at for turn in turns))
        return PROMPTS.find_all(self._database, "WHERE at >= ? AND at <= ? AND text <> '' ORDER BY at, id", times)


def _next_day(period: int) -> int:
    """Return the first period of the day after the one that has a period, in local time."""
    day = datetime.fromtimestamp(period * PERIOD_S).astimezone().date()
    midnight = datetime.combine(day + timedelta(days=1), datetime.min.time()).timestamp()
    return max(period + 1, int(midnight // PERIOD_S))


def _first_ids(part: LogPart, unfinished: Mapping[str, float]) -> list[tuple[Any, ...]]:
    """Return a row of `costs_open` for each unfinished session: since when, and the first id of each table."""
    first: dict[str, dict[str, int]] = {session: {} for session in unfinished}
    for turn in part.turns:
        if turn.session in first and turn.at >= unfinished[turn.session]:
            own, table = first[turn.session], _TABLES[turn.kind]
            own[table] = min(own.get(table, turn.id), turn.id)
    # Of a table without such a record all that is added up stays so.
    ends = {table: end + 1 for table, (_, end) in part.ids.items()}
    return [
        (session, since, *(first[session].get(table, ends[table]) for table in _TURNS))
        for session, since in unfinished.items()
    ]


def uncount_calls(database: Database, deleted: Sequence[int]) -> None:
    """Subtract deleted calls from the number of calls that are added up. `deleted`: their ids."""
    row = database.row("SELECT done FROM costs_marks WHERE name = 'calls'")
    if row is not None and (count := sum(id <= row[0] for id in deleted)):
        database.run("UPDATE costs_marks SET count = count - ? WHERE name = 'calls'", (count,))


def reset_costs(database: Database) -> None:
    """Delete what is added up, so that it is added up again from the start: records that it counts were deleted."""
    for table in ("costs", "costs_marks", "costs_open"):
        database.run(f"DELETE FROM {table}")  # noqa: S608  # a constant


def forget_sizes(database: Database) -> None:
    """Delete the record of how many tokens all tools took at each time."""
    database.run("DELETE FROM catalog_tokens")
