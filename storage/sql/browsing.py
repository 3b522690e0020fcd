"""What a person looks through: sessions with their sums, one session's calls and misses, and what surrounds a tool.

The log has no index on `session` or `tool`, because each would cost every call. So each question reads a bounded part
of it: ids rise with time, and a session knows the id of its first call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from foretool.storage.records import Call, Miss, Neighbour, ProfileCount, SessionRecord, SessionSum, ToolId, Usage
from foretool.storage.sql.calls import CALLED, CALLS, MISSES
from foretool.storage.sql.calls import latest as latest_calls
from foretool.storage.sql.database import Subject
from foretool.storage.sql.values import encode_json

_SUMS: Final = """
WITH wanted AS (
    SELECT * FROM sessions
    WHERE started_at < ? AND (? IS NULL OR profile = ?) AND (? = '' OR lower(client) = lower(?))
    ORDER BY started_at DESC LIMIT ?
),
-- Calls of sessions that began after these are looked at as well, but not more than some ten thousand.
called AS (
    SELECT session, count(*) AS calls, sum(hidden) AS hidden, max(at) AS last_at FROM (
        SELECT session, hidden, at FROM calls
        WHERE id >= {first} AND {within} AND outcome <> 'refused' ORDER BY id LIMIT 40000
    ) AS some_calls GROUP BY session
),
missed AS (
    SELECT session, count(*) AS misses FROM (
        SELECT session FROM misses WHERE at >= (SELECT min(started_at) FROM wanted) ORDER BY at LIMIT 10000
    ) AS some_misses GROUP BY session
)
SELECT {columns}, coalesce(called.calls, 0), coalesce(called.hidden, 0), coalesce(missed.misses, 0),
    coalesce(called.last_at, 0.0)
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
_LATEST: Final = (
    "SELECT session, tool FROM calls WHERE outcome <> 'refused' AND id >= ? AND {} ORDER BY id DESC LIMIT ?"
)
_CLIENTS: Final = """
SELECT key, client FROM sessions WHERE key IN ({}) AND (? IS NULL OR profile = ?)
"""
_USAGE: Final = """
SELECT tool, sum(called), sum(missed), max(at) FROM (
    SELECT session, tool, 1 AS called, 0 AS missed, at FROM (
        SELECT session, tool, at FROM calls WHERE outcome <> 'refused' AND id >= ? AND {} ORDER BY id DESC LIMIT ?
    ) AS latest
    UNION ALL SELECT session, tool, 0, 1, 0.0 FROM misses WHERE tool <> '' AND {called}
) AS used WHERE session IN (SELECT key FROM sessions WHERE profile = ?) GROUP BY tool
"""
_COUNTS: Final = """
WITH own AS MATERIALIZED (SELECT key, client FROM sessions WHERE profile = :profile)
SELECT 3600.0 * hour, client, sum(called), sum(hidden), sum(missed), sum(searched) FROM (
    SELECT session, CAST(at AS INTEGER) / 3600 AS hour, count(*) AS called, sum(hidden) AS hidden, 0 AS missed,
        0 AS searched
    FROM (
        SELECT session, at, hidden FROM calls WHERE outcome <> 'refused' AND id >= :first AND {}
        ORDER BY id DESC LIMIT :latest
    ) AS latest WHERE at >= :since GROUP BY session, hour
    UNION ALL SELECT session, CAST(at AS INTEGER) / 3600 AS hour, 0, 0, count(*), 0
    FROM (SELECT session, at FROM misses WHERE at >= :since ORDER BY at DESC LIMIT :fewer) AS latest
    GROUP BY session, hour
    UNION ALL SELECT session, CAST(at AS INTEGER) / 3600 AS hour, 0, 0, 0, count(*)
    FROM (SELECT session, at FROM discoveries WHERE at >= :since ORDER BY at DESC LIMIT :fewer) AS latest
    GROUP BY session, hour
) AS done JOIN own ON own.key = done.session GROUP BY hour, client
"""
_LAST_ID: Final = (1 << 63) - 1


class Browsing(Subject):
    """Implements `BrowseStore`."""

    def sessions(self, before: float, limit: int, profile: str | None = None, client: str = "") -> list[SessionSum]:
        columns = ", ".join(f"sessions.{name}" for name in SessionRecord.__struct_fields__)
        values = (before, profile, profile, client, client, limit)
        (first,) = self._database.rows(_FIRST_CALL, values)[0]
        query = _SUMS.format(columns=columns, first=int(first), within=self._database.within("calls", int(first)))
        return [_read_sum(row) for row in self._database.rows(query, values)]

    def calls_of(self, session: str, most: int) -> list[Call]:
        if (span := self._database.row(_SPAN, (session,))) is None:
            return []
        first, end = span[0], _LAST_ID if span[1] is None else span[1]
        within = self._database.within("calls", first, None if span[1] is None else end)
        rest = f"WHERE session = ? AND id >= ? AND id < ? AND {within} ORDER BY id LIMIT ?"
        return CALLS.find_all(self._database, rest, (session, first, end, most))

    def misses_of(self, session: str, most: int) -> list[Miss]:
        rest = (
            "WHERE session = :key AND at >= (SELECT started_at FROM sessions WHERE key = :key) - 1"
            " ORDER BY id LIMIT :most"
        )
        return MISSES.find_all(self._database, rest, {"key": session, "most": most})

    def neighbours(self, tool: ToolId, latest: int, profile: str | None = None) -> list[Neighbour]:
        chains: dict[str, list[str]] = {}
        first, within = latest_calls(self._database, "calls", latest, "outcome <> 'refused'")
        for session, called in self._database.rows(_LATEST.format(within), (first, latest)):
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
        first, within = latest_calls(self._database, "calls", latest, "outcome <> 'refused'")
        rows = self._database.rows(
            _COUNTS.format(within),
            {"profile": profile, "since": since, "first": first, "latest": latest, "fewer": latest // 5},
        )
        return [ProfileCount(*row) for row in rows]

    def usage(self, profile: str, latest: int) -> list[Usage]:
        first, within = latest_calls(self._database, "calls", latest, "outcome <> 'refused'")
        rows = self._database.rows(_USAGE.format(within, called=CALLED), (first, latest, profile))
        return [Usage(ToolId(tool), *rest) for tool, *rest in rows]


def _read_sum(row: tuple[Any, ...]) -> SessionSum:
    *record, calls, hidden, misses, last_at = row
    return SessionSum(SessionRecord(*record), calls, hidden, misses, last_at)
