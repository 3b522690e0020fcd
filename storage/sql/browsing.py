"""What a person looks through: sessions with their sums, one session's calls and misses, and what surrounds a tool.

The log has no index on `session` or `tool`, because each would cost every call. So each question reads a bounded part
of it: ids rise with time, and a session knows the id of its first call.

An export reads whole tables of the log page by page, so that memory stays small and no reader holds up the write-ahead
log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from foretool.storage.records import (
    FAILED,
    Call,
    Event,
    Exposure,
    Miss,
    Neighbour,
    ProfileCount,
    Prompt,
    SessionRecord,
    SessionSum,
    ToolId,
    Usage,
)
from foretool.storage.sql.calls import CALL_EVENT, CALLED, CALLS, MISSES
from foretool.storage.sql.database import Subject, encode_json
from foretool.storage.sql.discoveries import PROMPTS
from foretool.storage.sql.sessions import GET_EXPOSURES, read_exposure

PAGE: Final = 1000
_WITHIN: Final = "WHERE id > ? AND at >= ? AND at < ? ORDER BY id LIMIT ?"
_EXPOSURES: Final = f"{GET_EXPOSURES} WHERE exposures.id > ? AND at >= ? AND at < ? ORDER BY exposures.id LIMIT ?"
_CALL_EVENTS: Final = (
    f"{CALL_EVENT}, id FROM calls WHERE outcome <> 'refused' AND id > ? AND at >= ? AND at < ? ORDER BY id LIMIT ?"
)
_TASK_EVENTS: Final = (
    "SELECT at, 'task', task, 1, handle, session, '', id FROM discoveries"
    " WHERE task <> '' AND id > ? AND at >= ? AND at < ? ORDER BY id LIMIT ?"
)


class ExportStore(Subject):
    """Whole kinds of records, from a time on and before another, in the order in which they were written.

    They are read a thousand at a time, so there may be millions.
    """

    def calls(self, since: float, until: float) -> Iterator[Call]:
        for row in self._pages(f"{CALLS.select} {_WITHIN}", CALLS.fields.index("id"), since, until):
            yield CALLS.read(row)

    def misses(self, since: float, until: float) -> Iterator[Miss]:
        for row in self._pages(f"{MISSES.select} {_WITHIN}", MISSES.fields.index("id"), since, until):
            yield MISSES.read(row)

    def exposures(self, since: float, until: float) -> Iterator[Exposure]:
        yield from map(read_exposure, self._pages(_EXPOSURES, -1, since, until))

    def call_events(self, since: float, until: float) -> Iterator[Event]:
        """Yield the calls as events, without those that were refused."""
        return self._events(_CALL_EVENTS, since, until)

    def task_events(self, since: float, until: float) -> Iterator[Event]:
        return self._events(_TASK_EVENTS, since, until)

    def prompts(self, since: float, until: float) -> list[Prompt]:
        """Return the prompts that have a text, the oldest first."""
        return PROMPTS.find_all(
            self._database, "WHERE at >= ? AND at <= ? AND text <> '' ORDER BY at, id", (since, until)
        )

    def _events(self, query: str, since: float, until: float) -> Iterator[Event]:
        for at, kind, text, ok, handle, session, arguments, _ in self._pages(query, -1, since, until):
            yield Event(at, kind, text, bool(ok), handle, session, arguments)

    def _pages(self, query: str, id: int, since: float, until: float) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query in the order of their ids; `id`: the place of the id in a row."""
        last = 0
        while rows := self._database.rows(query, (last, since, until, PAGE)):
            yield from rows
            last = rows[-1][id]


_ENDS: Final = (
    "sum(CASE WHEN outcome = 'refused' THEN 1 ELSE 0 END) AS refused,"
    f" sum(CASE WHEN outcome IN ({', '.join(map(repr, FAILED))}) THEN 1 ELSE 0 END) AS failed"
)
"""How many calls did not run, and how many came to nothing."""
_SUMS: Final = """
WITH wanted AS (
    SELECT * FROM sessions
    WHERE started_at < ? AND (? IS NULL OR profile = ?) AND (? = '' OR lower(client) = lower(?))
    ORDER BY started_at DESC LIMIT ?
),
-- Calls of sessions that began after these are looked at as well, but not more than some ten thousand.
called AS (
    SELECT session, count(*) AS calls, sum(CASE WHEN outcome <> 'refused' THEN hidden ELSE 0 END) AS hidden,
        max(at) AS last_at, {sums}
    FROM (
        SELECT session, hidden, at, outcome FROM calls
        WHERE id >= {first} ORDER BY id LIMIT 40000
    ) AS some_calls GROUP BY session
),
missed AS (
    SELECT session, count(*) AS misses FROM (
        SELECT session FROM misses WHERE at >= (SELECT min(started_at) FROM wanted) ORDER BY at LIMIT 10000
    ) AS some_misses GROUP BY session
)
SELECT {columns}, coalesce(called.calls, 0), coalesce(called.hidden, 0), coalesce(missed.misses, 0),
    coalesce(called.last_at, 0.0), coalesce(called.refused, 0), coalesce(called.failed, 0)
FROM wanted AS sessions
LEFT JOIN called ON called.session = sessions.key LEFT JOIN missed ON missed.session = sessions.key
ORDER BY sessions.started_at DESC
"""
# A session that began after this one had ended begins with a later call.
_SPAN: Final = """
SELECT first_call, (SELECT min(first_call) FROM sessions AS later WHERE later.started_at > sessions.ended_at + 1)
FROM sessions WHERE key = ?
"""
_FIRST_CALL: Final = """
SELECT coalesce(min(first_call), 0) FROM (
    SELECT first_call FROM sessions
    WHERE started_at < ? AND (? IS NULL OR profile = ?) AND (? = '' OR lower(client) = lower(?))
    ORDER BY started_at DESC LIMIT ?
) AS wanted
"""
_LATEST: Final = "SELECT session, tool FROM calls WHERE outcome <> 'refused' ORDER BY id DESC LIMIT ?"
_CLIENTS: Final = """
SELECT key, client FROM sessions WHERE key IN ({}) AND (? IS NULL OR profile = ?)
"""
_USAGE: Final = """
SELECT tool, sum(called), sum(missed), max(at) FROM (
    SELECT session, tool, 1 AS called, 0 AS missed, at FROM (
        SELECT session, tool, at FROM calls WHERE outcome <> 'refused' ORDER BY id DESC LIMIT ?
    ) AS latest
    UNION ALL SELECT session, tool, 0, 1, 0.0 FROM misses WHERE tool <> '' AND {called}
) AS used WHERE session IN (SELECT key FROM sessions WHERE profile = ?) GROUP BY tool
"""
_COUNTS: Final = """
WITH own AS MATERIALIZED (SELECT key, client FROM sessions WHERE profile = :profile)
SELECT 3600.0 * hour, client, sum(called), sum(hidden), sum(missed), sum(searched), sum(refused), sum(failed) FROM (
    SELECT session, CAST(at AS INTEGER) / 3600 AS hour, count(*) AS called,
        sum(CASE WHEN outcome <> 'refused' THEN hidden ELSE 0 END) AS hidden, 0 AS missed, 0 AS searched, {sums}
    FROM (
        SELECT session, at, hidden, outcome FROM calls ORDER BY id DESC LIMIT :latest
    ) AS latest WHERE at >= :since GROUP BY session, hour
    UNION ALL SELECT session, CAST(at AS INTEGER) / 3600 AS hour, 0, 0, count(*), 0, 0, 0
    FROM (SELECT session, at FROM misses WHERE at >= :since ORDER BY at DESC LIMIT :fewer) AS latest
    GROUP BY session, hour
    UNION ALL SELECT session, CAST(at AS INTEGER) / 3600 AS hour, 0, 0, 0, count(*), 0, 0
    FROM (SELECT session, at FROM discoveries WHERE at >= :since ORDER BY at DESC LIMIT :fewer) AS latest
    GROUP BY session, hour
) AS done JOIN own ON own.key = done.session GROUP BY hour, client
"""
_LAST_ID: Final = (1 << 63) - 1


class BrowseStore(Subject):
    """What a person looks through. `profile` limits an answer to the sessions of one profile; None means all."""

    def sessions(self, before: float, limit: int, profile: str | None = None, client: str = "") -> list[SessionSum]:
        """Return sessions that began before a time, of one client or of all (""), the newest first."""
        columns = ", ".join(f"sessions.{name}" for name in SessionRecord.__struct_fields__)
        values = (before, profile, profile, client, client, limit)
        (first,) = self._database.rows(_FIRST_CALL, values)[0]
        query = _SUMS.format(columns=columns, first=int(first), sums=_ENDS)
        return [_read_sum(row) for row in self._database.rows(query, values)]

    def calls_of(self, session: str, most: int) -> list[Call]:
        """Return the first calls of a session, the oldest first."""
        if (span := self._database.row(_SPAN, (session,))) is None:
            return []
        first, end = span[0], _LAST_ID if span[1] is None else span[1]
        rest = "WHERE session = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
        return CALLS.find_all(self._database, rest, (session, first, end, most))

    def misses_of(self, session: str, most: int) -> list[Miss]:
        """Return the first misses of a session, the oldest first."""
        rest = (
            "WHERE session = :key AND at >= (SELECT started_at FROM sessions WHERE key = :key) - 1"
            " ORDER BY id LIMIT :most"
        )
        return MISSES.find_all(self._database, rest, {"key": session, "most": most})

    def neighbours(self, tool: ToolId, latest: int, profile: str | None = None) -> list[Neighbour]:
        """Return what was called right before and right after a tool within the latest calls, the most frequent
        first."""
        chains: dict[str, list[str]] = {}
        for session, called in self._database.rows(_LATEST, (latest,)):
            chains.setdefault(session, [""]).append(called)
        found: Counter[tuple[str, str, bool]] = Counter()
        keys = [session for session, chain in chains.items() if tool in chain]
        for session, client in self._database.rows(
            _CLIENTS.format(self._database.json_strings), (encode_json(keys), profile, profile)
        ):
            # The latest call comes first, so each is followed by the one before it.
            for after, called, before in zip(chain := chains[session], chain[1:], [*chain[2:], ""], strict=False):
                if called == tool:
                    found[client, before, True] += 1
                    found[client, after, False] += 1
        counted = sorted(found.items(), key=lambda each: (-each[1], each[0]))
        return [Neighbour(client, ToolId(other), is_before, times) for (client, other, is_before), times in counted]

    def counts(self, profile: str, since: float, latest: int) -> list[ProfileCount]:
        """Return what one profile did since a time, by hour and client, among the latest calls of all profiles."""
        rows = self._database.rows(
            _COUNTS.format(sums=_ENDS),
            {"profile": profile, "since": since, "latest": latest, "fewer": latest // 5},
        )
        return [ProfileCount(*row) for row in rows]

    def usage(self, profile: str, latest: int) -> list[Usage]:
        """Return the tools that one profile called among the latest calls of all profiles, or ever missed."""
        rows = self._database.rows(_USAGE.format(called=CALLED), (latest, profile))
        return [Usage(ToolId(tool), *rest) for tool, *rest in rows]


def _read_sum(row: tuple[Any, ...]) -> SessionSum:
    *record, calls, hidden, misses, last_at, refused, failed = row
    return SessionSum(SessionRecord(*record), calls, hidden, misses, last_at, refused, failed)
