"""The tables `calls`, `misses`, `usage` and `flows`: what clients called and missed, what flowed between calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final

from msgspec.json import Decoder
from msgspec.structs import replace

from foretool.storage.engine import StorageError
from foretool.storage.records import (
    Call,
    Cause,
    Event,
    Exposure,
    Flow,
    FlowKey,
    KeptCall,
    Miss,
    MissCount,
    MissFilter,
    MissKind,
    Retry,
    ToolId,
    Usage,
    kind_of_miss,
)
from foretool.storage.sql.database import Database, Said, Subject, Values, encode_json
from foretool.storage.sql.tables import MAY_COUNT, TOOL_IDS, Repeats, Table

CALLS = Table("calls", Call, flags=("hidden", "sent"), said=("arguments", "handle"))
MISSES = Table("misses", Miss, {"history": TOOL_IDS, "parts": Decoder(dict[str, float])}, said=("query", "change"))
_USAGE = Table("usage", Usage)
_USAGE_OF_PROFILE = "SELECT tool, calls, misses, last_at FROM profile_usage WHERE profile = ? ORDER BY calls DESC, tool"
_FLOWS = Table("flows", Flow)
MOST_ARGUMENTS: Final = 16_384
"""Characters. Hundreds of calls are read at once, so one with longer arguments is read as an event without any."""
CALL_EVENT: Final = (
    "SELECT at, 'call', tool, outcome = 'ok', handle, session,"
    f" CASE WHEN length(arguments) <= {MOST_ARGUMENTS} THEN arguments ELSE '' END"
)
_EVENTS: Final = f"{CALL_EVENT} FROM calls WHERE outcome <> 'refused'"
_LATEST = "ORDER BY id DESC LIMIT ?"
CALLED: Final = "noticed NOT IN ('unknown_name', 'nothing_found', 'shell') AND (noticed <> 'search' OR call > 0)"
"""The condition for misses of calls. A search that did not show a tool is a miss beside that of its call, and a command
of the shell calls nothing."""
COUNTED: Final = {
    "calls": f"outcome <> 'refused' AND {MAY_COUNT.format(table='calls')}",
    "misses": f"tool <> '' AND {CALLED} AND {MAY_COUNT.format(table='misses')}",
}
"""The condition for records of each table that `usage` counts."""
_USED_SINCE = f"""
SELECT tool, sum(called), sum(missed), max(at) FROM (
    SELECT tool, 1 AS called, 0 AS missed, at FROM calls
    WHERE {COUNTED["calls"]} AND id >= ? AND at >= ?
    UNION ALL SELECT tool, 0, 1, 0.0 FROM misses
    WHERE at >= ? AND {COUNTED["misses"]}
) AS used GROUP BY tool
"""  # noqa: S608
_LAST_USED = f"SELECT tool, max(at) FROM calls WHERE {COUNTED['calls']} AND id >= ? AND at < ? GROUP BY tool"  # noqa: S608
_CALLS_OF_CHATS = (
    "SELECT at, tool, outcome, handle, session FROM calls WHERE outcome <> 'refused' ORDER BY id DESC LIMIT ?"
)

FOLDED = 2000
"""Calls, and misses, that are added to `usage` in one transaction, which takes about a millisecond."""
_LONGEST_CALL_S = 3600.0
"""A call that takes longer, or clocks that differ by more, may be looked for in vain by time."""

_AT_ONCE = 100_000
"""Calls that one query goes through for those of rare tools."""
_OF_TOOLS = """
SELECT id, tool FROM calls WHERE id >= ? AND id < ? AND outcome = 'ok'
AND tool IN ({}) ORDER BY id DESC
"""
_FOLD_CALLS = f"""
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, count(*), 0, max(at) FROM calls
WHERE id > ? AND id <= ? AND {COUNTED["calls"]} GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET calls = usage.calls + excluded.calls,
    last_at = CASE WHEN usage.last_at > excluded.last_at THEN usage.last_at ELSE excluded.last_at END
"""  # noqa: S608
_FOLD_MISSES = f"""
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, 0, count(*), 0 FROM misses
WHERE id > ? AND id <= ? AND {COUNTED["misses"]} GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET misses = usage.misses + excluded.misses
"""  # noqa: S608
_FOLD_CALLS_OF_PROFILES = f"""
INSERT INTO profile_usage (profile, tool, calls, misses, last_at)
SELECT sessions.profile, tool, count(*), 0, max(at) FROM calls JOIN sessions ON sessions.key = calls.session
WHERE id > ? AND id <= ? AND {COUNTED["calls"]} GROUP BY sessions.profile, tool
ON CONFLICT (profile, tool) DO UPDATE SET calls = profile_usage.calls + excluded.calls,
    last_at = CASE WHEN profile_usage.last_at > excluded.last_at THEN profile_usage.last_at ELSE excluded.last_at END
"""  # noqa: S608
_FOLD_MISSES_OF_PROFILES = f"""
INSERT INTO profile_usage (profile, tool, calls, misses, last_at)
SELECT sessions.profile, tool, 0, count(*), 0 FROM misses JOIN sessions ON sessions.key = misses.session
WHERE id > ? AND id <= ? AND {COUNTED["misses"]} GROUP BY sessions.profile, tool
ON CONFLICT (profile, tool) DO UPDATE SET misses = profile_usage.misses + excluded.misses
"""  # noqa: S608

_SET_FOLDED = (
    "INSERT INTO usage_folded (id, call, miss) VALUES (1, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET call = excluded.call, miss = excluded.miss"
)

_COUNT_MISSES = """
SELECT tool, cause, noticed, call > 0, count(*), sum(CASE WHEN recovered <> 'no' THEN 1 ELSE 0 END), sum(turns),
    sum(tokens), max(at), max(id) FROM misses
WHERE {} GROUP BY tool, cause, noticed, call > 0
"""

_ALL_AT_ONCE = "session IN (SELECT key FROM sessions WHERE {})"
"""Sessions of misses that are all read: they are read once."""
_ONE_BY_ONE = "EXISTS (SELECT 1 FROM sessions WHERE sessions.key = misses.session AND {})"
"""Sessions of the latest misses: each is looked for by its key until there are enough misses."""

FEWEST_FAILED: Final = 3
"""With fewer calls, all of which failed, nobody knows whether a tool works."""
_FAILING = """
SELECT tool FROM (SELECT tool, outcome FROM calls ORDER BY id DESC LIMIT ?) AS latest
WHERE outcome NOT IN ('refused', 'cancelled')
GROUP BY tool HAVING count(*) >= ? AND max(CASE WHEN outcome = 'ok' THEN 1 ELSE 0 END) = 0
"""


_FIRST_CALL: Final = """
WITH RECURSIVE halves (low, high) AS (
    SELECT coalesce((SELECT min(id) FROM calls), 0), coalesce((SELECT max(id) FROM calls), 0)
    UNION ALL
    SELECT CASE WHEN at >= :before THEN low ELSE id + 1 END, CASE WHEN at >= :before THEN (low + high) / 2 ELSE high END
    FROM halves JOIN calls ON id = (SELECT min(later.id) FROM calls AS later WHERE later.id >= (low + high) / 2)
    WHERE low < high
)
SELECT max(low) FROM halves
"""
"""One statement, so that a database far away is asked once."""
_MOST_IN_DOUBT: Final = 100_000
"""Latest records among which a batch is looked for whose commit may have been made."""
_FIND_CALL: Final = "SELECT id FROM calls WHERE id > ? AND at = ? AND session = ? AND tool = ? AND took_ms = ? LIMIT 1"
_FIND_MISS: Final = "SELECT id FROM misses WHERE id > ? AND at = ? AND session = ? AND tool = ? LIMIT 1"
_SAME_MISS: Final = "at = ? AND session = ? AND tool = ? AND discovery = ? AND noticed = ?"
_MOST_LATEST: Final = 100
_MISSED_WITH: Final = (
    "SELECT DISTINCT tool FROM (SELECT tool, session, exposure FROM misses ORDER BY id DESC LIMIT ?) AS latest"
    " WHERE session = ? AND exposure = ?"
)
_REVISE: Final = (
    "UPDATE misses SET "  # noqa: S608  # constants
    + ", ".join(f'"{column}" = ?' for column in MISSES.columns[:-1])
    + f" WHERE {_SAME_MISS}"
)
"""All but the id of the call, which is the last column."""


class CallStore(Subject):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._repeated = Repeats(database, _call_key, self._find_call)
        self._missed_again = Repeats(database, _miss_key, self._find_miss)

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        """Commit a batch in one transaction; when this returns, `kill -9` loses none of it.

        The `call` of a miss is the place in `calls`, counted from 1, of the call that revealed it; the store keeps
        that call's id instead. Raises `ValueError` if there is no such place.
        """
        rest, noticed = self._repeated.leave_out(calls), self._missed_again.leave_out(misses)
        if len(rest) < len(calls):
            # A miss names the place of its call in the batch.
            places = {id(call): place for place, call in enumerate(rest, 1)}
            by_place = {place: places.get(id(call), 0) for place, call in enumerate(calls, 1)}
            noticed = [replace(miss, call=by_place.get(miss.call, 0)) for miss in noticed]
        self._record(rest, noticed)

    def _record(self, calls: Sequence[Call], misses: Sequence[Miss]) -> None:
        if len(calls) == 1 and not misses:
            # The path of nearly every call: only the two texts that others said are looked at.
            self._database.commit(CALLS.insert, self._database.clean_places(CALLS.values(calls[0]), CALLS.places))
            return
        if not calls and not misses:
            return
        if any(not 0 <= miss.call <= len(calls) for miss in misses):
            raise ValueError(f"Miss.call is the place of a call in its batch of {len(calls)}, 1 the first, or 0")
        children = [(miss.call, list(_miss_row(miss))) for miss in misses]
        self._database.insert_linked(CALLS.insert, [CALLS.row(call) for call in calls], MISSES.insert, children)

    def revise(self, changed: Sequence[tuple[Miss, Miss | None]]) -> None:
        """Replace misses on record by what is known of them now. Each pair has the miss as it was written and its new
        form, or None if it turned out to be no miss. The call that revealed it stays on record."""
        with self._database.atomic():
            for before, after in changed:
                same = (before.at, before.session, before.tool, before.discovery, before.noticed)
                if after is None:
                    self._database.run(f"DELETE FROM misses WHERE {_SAME_MISS}", same)  # noqa: S608  # a constant
                else:
                    self._database.run(_REVISE, (*_miss_row(after)[:-1], *same))
            if self._database.gives_ids_again and any(after is None for _, after in changed):
                mend_marks(self._database)

    def _find_call(self, call: Call) -> int:
        return self._find_latest("calls", _FIND_CALL, _call_key(call))

    def _find_miss(self, miss: Miss) -> int:
        return self._find_latest("misses", _FIND_MISS, _miss_key(miss))

    def _find_latest(self, table: str, query: str, key: tuple[Any, ...]) -> int:
        row = self._database.row(query, (self._database.newest(table) - _MOST_IN_DOUBT, *key))
        return int(row[0]) if row else 0

    def get(self, id: int) -> Call | None:
        return CALLS.find(self._database, "WHERE id = ?", (id,))

    def recent(self, limit: int) -> list[Call]:
        return CALLS.find_all(self._database, "ORDER BY id DESC LIMIT ?", (limit,))

    def of_session(self, session: str, since: float, until: float) -> list[Call]:
        """Return the calls of a session in a time, the oldest first."""
        # A call is written when it ends, so those that began until then have ids up to some time later.
        first, last = first_call(self._database, since), first_call(self._database, until + 2 * _LONGEST_CALL_S)
        rest = "WHERE id >= ? AND id <= ? AND session = ? AND at >= ? AND at <= ? ORDER BY id"
        return CALLS.find_all(self._database, rest, (first, last, session, since, until))

    def events(self, limit: int) -> list[Event]:
        """Return the latest calls as events, the oldest first."""
        return self._events(_LATEST, (limit,))[::-1]

    def shared_events(self, limit: int) -> list[Event]:
        """Return the latest calls as events, the oldest first, without sessions of people who opted out of learning."""
        return self._events(f"AND {MAY_COUNT.format(table='calls')} {_LATEST}", (limit,))[::-1]

    def events_before(self, at: float, limit: int, among: int) -> list[Event]:
        """Return the latest `limit` calls that began before a time as events, the oldest first. Looks at the calls with
        the latest `among` ids alone, so that it stays fast."""
        first = self._database.newest("calls") - among + 1
        return self._events(f"AND id >= ? AND at < ? {_LATEST}", (first, at, limit))[::-1]

    def _events(self, rest: str, values: Values) -> list[Event]:
        return [
            Event(at, kind, tool, bool(ok), handle, session, arguments)
            for at, kind, tool, ok, handle, session, arguments in self._database.rows(f"{_EVENTS} {rest}", values)
        ]

    def used_since(self, since: float, among: int) -> list[Usage]:
        """Return how often each tool was called and missed since a time. Of calls it looks at those with the latest
        `among` ids alone."""
        first = self._database.newest("calls") - among + 1
        return [Usage(ToolId(tool), *rest) for tool, *rest in self._database.rows(_USED_SINCE, (first, since, since))]

    def last_used(self, before: float, among: int) -> dict[ToolId, float]:
        """Return when each tool was last called before a time. Looks at the calls with the latest `among` ids alone."""
        first = self._database.newest("calls") - among + 1
        return {ToolId(tool): at for tool, at in self._database.rows(_LAST_USED, (first, before))}

    def retries(self, limit: int, since: float, within_s: float) -> tuple[list[Retry], float]:
        """Return the retries among the latest `limit` calls that began `since` a time or later, in the order of their
        times: the second call ended well and came within `within_s` seconds. Returns also the time of the first call
        that was read."""
        calls = [row for row in self._database.rows(_CALLS_OF_CHATS, (limit,)) if row[0] >= since]
        # Ids rise with the ends of calls; of two that began at once, the one that ended first comes first.
        calls.reverse()
        calls.sort(key=itemgetter(0))
        found: list[Retry] = []
        failed: dict[tuple[str, str], tuple[float, ToolId]] = {}
        for at, tool, outcome, handle, session in calls:
            if outcome != "ok":
                failed[session, handle] = (at, tool)
            elif failed and (before := failed.pop((session, handle), None)) is not None:
                failed_at, other = before
                if other != tool and at - failed_at <= within_s:
                    found.append(Retry(session, handle, failed_at, other, at, tool))
        return found, calls[0][0] if calls else since

    def first_of_latest(self, limit: int) -> int:
        """Return the id of the oldest of the latest `limit` calls; 0 if there is none."""
        sql = "SELECT min(id) FROM (SELECT id FROM calls ORDER BY id DESC LIMIT ?) AS latest"
        return int(self._database.rows(sql, (limit,))[0][0] or 0)

    def latest_of(self, tools: Collection[ToolId], each: int, before: int, most: int) -> list[int]:
        """Return the ids of the latest calls of these tools, the newest first: `each` of a tool that are older than the
        call `before`, as far as they are found among the `most` calls before it."""
        left, found, last = dict.fromkeys(tools, each), [], before
        until = max(before - most, 0)
        while left and last > until:
            first = max(last - _AT_ONCE, until)
            wanted = _OF_TOOLS.format(self._database.json_strings)
            for id, tool in self._database.rows(wanted, (first, last, encode_json(list(left)))):
                if tool in left:
                    found.append(int(id))
                    left[tool] -= 1
                    if not left[tool]:
                        del left[tool]
            last = first
        return found

    def events_between(self, first: int, last: int) -> list[Event]:
        """Return the calls from one id to another as events, the oldest first."""
        return self._events("AND id >= ? AND id <= ? ORDER BY id", (first, last))

    def failing(self, limit: int) -> set[ToolId]:
        """Return the tools that failed at each of several calls, as far as these are among the latest `limit` calls.
        One call fails for wrong arguments, or because its client cannot be asked."""
        return {ToolId(tool) for (tool,) in self._database.rows(_FAILING, (limit, FEWEST_FAILED))}

    def miss(self, id: int) -> Miss | None:
        return MISSES.find(self._database, "WHERE id = ?", (id,))

    def misses(self, since: float = 0.0, limit: int = -1) -> list[Miss]:
        return MISSES.find_all(self._database, "WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?", (since, limit))

    def missed_with(self, given: Exposure) -> set[ToolId]:
        """Return what a session missed while it had this list, among the latest misses of the store."""
        values = (_MOST_LATEST, given.session, given.id)
        return {ToolId(tool) for (tool,) in self._database.rows(_MISSED_WITH, values)}

    def misses_of(self, session: str, since: float) -> list[Miss]:
        """Return the misses of a session since a time, the oldest first."""
        return MISSES.find_all(self._database, "WHERE at >= ? AND session = ? ORDER BY at, id", (since, session))

    def find_misses(self, wanted: MissFilter, limit: int = -1) -> list[Miss]:
        where, values = self._conditions(wanted, _ONE_BY_ONE)
        return MISSES.find_all(self._database, f"WHERE {where} ORDER BY at DESC, id DESC LIMIT ?", (*values, limit))

    def count_misses(self, wanted: MissFilter) -> list[MissCount]:
        """Return how often each tool was missed for each cause, the most frequent first."""
        where, values = self._conditions(wanted, _ALL_AT_ONCE)
        found: dict[tuple[str, Cause, MissKind], MissCount] = {}
        for row in self._database.rows(_COUNT_MISSES.format(where), values):
            tool, cause, noticed, is_of_call, count, recovered, turns, tokens, last_at, last_id = row
            kind = kind_of_miss(noticed, cause, is_of_call=bool(is_of_call))
            # What a search was for is counted with the call of it, and not with the search before it.
            name = "" if kind == "search" else tool
            counted = MissCount(name, cause, count, recovered, turns, tokens, last_at, last_id, kind)
            key = (name, cause, kind)
            found[key] = found[key].with_more(counted) if key in found else counted
        return sorted(found.values(), key=lambda each: (-each.count, -each.last_at, each.tool))

    def usage(self) -> list[Usage]:
        """Return every tool ever called or missed, the most called first. Misses of unknown names do not count, nor
        does what people did who opted out of learning. The latest records are missing where nothing can be written."""
        with suppress(StorageError):
            self.fold_usage()
        return self.counted_usage()

    def counted_usage(self) -> list[Usage]:
        """Return what `usage` returns, as far as `fold_some` has counted it: fast however long the log is, but the
        latest records are missing."""
        return _USAGE.find_all(self._database, "ORDER BY calls DESC, last_at DESC, tool")

    def counted_usage_of(self, profile: str) -> list[Usage]:
        """Return `counted_usage` of one profile's sessions, from when the store began to count profiles."""
        return [Usage(ToolId(tool), *rest) for tool, *rest in self._database.rows(_USAGE_OF_PROFILE, (profile,))]

    def fold_usage(self) -> None:
        """Count everything that is not in `usage` yet."""
        while self.fold_some():
            pass

    def fold_some(self) -> bool:
        """Count a few thousand more records for `usage`; return whether some are left. `record` counts none, so that
        it stays cheap."""
        if self._unfolded() == 0:
            return False
        with self._database.atomic():
            # Other writers wait for this block, so that it is short.
            self._database.settle_writes("calls", "misses")
            newest = self._database.newest("calls"), self._database.newest("misses")
        with self._database.atomic():
            call, miss = self._folded()
            # Another process may have counted further meanwhile.
            until = (min(max(newest[0], call), call + FOLDED), min(max(newest[1], miss), miss + FOLDED))
            self._database.run(_FOLD_CALLS, (call, until[0]))
            self._database.run(_FOLD_MISSES, (miss, until[1]))
            self._database.run(_FOLD_CALLS_OF_PROFILES, (call, until[0]))
            self._database.run(_FOLD_MISSES_OF_PROFILES, (miss, until[1]))
            self._database.run(_SET_FOLDED, until)
        return self._unfolded() > 0

    def _unfolded(self) -> int:
        """Return how many ids are not in `usage` yet."""
        call, miss = self._folded()
        return max(self._database.newest("calls") - call, 0) + max(self._database.newest("misses") - miss, 0)

    def _folded(self) -> tuple[int, int]:
        """Return the last call and the last miss that `usage` counts."""
        row = self._database.row("SELECT call, miss FROM usage_folded WHERE id = 1") or (0, 0)
        return row[0], row[1]

    def _conditions(self, wanted: MissFilter, sessions: str) -> tuple[str, tuple[Any, ...]]:
        """Return the condition of a WHERE clause, and its values. `sessions`: the condition for sessions that meet
        another one."""
        matches, pattern = self._database.match_tool("tool", wanted.tool)
        recovered = None if wanted.recovered is None else int(wanted.recovered)
        # Each session is looked for once, and only those of the misses that meet all else.
        of_session = [
            (condition, value)
            for condition, value, is_given in (
                ("lower(client) = lower(?)", wanted.client, bool(wanted.client)),
                ("profile = ?", wanted.profile, wanted.profile is not None),
            )
            if is_given
        ]
        given: list[tuple[str, object, bool]] = [
            ("at >= ?", wanted.since, True),
            ("at < ?", wanted.until, wanted.until is not None),
            ("cause = ?", wanted.cause, wanted.cause is not None),
            ("CASE WHEN recovered <> 'no' THEN 1 ELSE 0 END = ?", recovered, recovered is not None),
            ("tool IN (SELECT exposed FROM exposed_names WHERE upstream = ?)", wanted.server, bool(wanted.server)),
            (matches, pattern, bool(wanted.tool)),
        ]
        used = [(condition, value) for condition, value, is_given in given if is_given]
        conditions = [condition for condition, _ in used]
        if of_session:
            conditions.append(sessions.format(" AND ".join(condition for condition, _ in of_session)))
        return " AND ".join(conditions), tuple(value for _, value in (*used, *of_session))


def mend_marks(database: Database) -> None:
    """Lower the marks of what is counted in `usage` and added up as costs to the last record, after the newest records
    were deleted: their ids may be given again."""
    for table in ("exposures", "discoveries", "calls", "misses"):
        newest = database.newest(table)
        database.run("UPDATE costs_marks SET done = ? WHERE name = ? AND done > ?", (newest, table, newest))
        if column := {"calls": "call", "misses": "miss"}.get(table):
            database.run(
                f"UPDATE usage_folded SET {column} = ? WHERE {column} > ?",  # noqa: S608  # a constant
                (newest, newest),
            )


def first_call(database: Database, since: float) -> int:
    """Return the id of a call before which none began at `since` or later; 0 where there is none.

    Calls have no index that finds a time, so their ids are halved some twenty times. They do not lie exactly in the
    order of their times: a call is written when it ends, by one of several processes.
    """
    return int(database.rows(_FIRST_CALL, {"before": since - _LONGEST_CALL_S})[0][0])


def _call_key(call: Call) -> tuple[Any, ...]:
    """Return what tells a call from every other one: no two end after the same time to the last digit."""
    return call.at, call.session, call.tool, call.took_ms


def _miss_key(miss: Miss) -> tuple[Any, ...]:
    return miss.at, miss.session, miss.tool


def _miss_row(miss: Miss) -> tuple[Any, ...]:
    # A name that no tool has is whatever the client typed.
    return MISSES.row(replace(miss, tool=Said(miss.tool)) if miss.noticed == "unknown_name" else miss)


class FlowStore(Subject):
    """Which tools' results came back as arguments of which other tools: names of fields, never values."""

    def add(self, seen: Mapping[FlowKey, int], at: float) -> None:
        """Add to the counts of flows; other proxies add to the same ones."""
        self._database.write_all(
            f"{_FLOWS.insert} ON CONFLICT (before, after, field, parameter)"
            " DO UPDATE SET times = flows.times + excluded.times, last_at = excluded.last_at",
            (
                (before, after, Said(field), Said(parameter), times, at)
                for (before, after, field, parameter), times in seen.items()
            ),
        )

    def all(self) -> list[Flow]:
        """Return all flows, the most frequent first."""
        return _FLOWS.find_all(self._database, "ORDER BY times DESC, before, after, field, parameter")


_KEPT: Final = Table("kept_calls", KeptCall, said=("reply", "record"))
_SAVE_KEPT: Final = _KEPT.upsert("ident")
_KEPT_SIZES: Final = "SELECT ident, length(reply) FROM kept_calls WHERE owner = ? ORDER BY started_at DESC, ident"


class KeptCallStore(Subject):
    """Calls that go on after their clients were answered. No export has them."""

    def find(self, ident: str) -> KeptCall | None:
        return _KEPT.find(self._database, "WHERE ident = ?", (ident,))

    def save(self, call: KeptCall) -> None:
        """Add a call, or replace what is known of it."""
        self._database.run(_SAVE_KEPT, _KEPT.row(call))

    def shorten(self, ident: str, until: float) -> None:
        """Keep a call only until this time, if it would have been kept longer."""
        self._database.run("UPDATE kept_calls SET until = ? WHERE ident = ? AND until > ?", (until, ident, until))

    def trim(self, owner: str, most: int, most_bytes: int) -> None:
        """Delete the oldest calls of an owner who has more than so many, or more than so many bytes of results."""
        left = most_bytes
        for place, (ident, size) in enumerate(self._database.rows(_KEPT_SIZES, (owner,))):
            left -= size
            if place >= most or left < 0:
                self._database.run("DELETE FROM kept_calls WHERE ident = ?", (ident,))

    def forget_old(self, now: float) -> int:
        """Delete the calls whose time is over; return how many there were."""
        return self._database.run("DELETE FROM kept_calls WHERE until < ?", (now,))
