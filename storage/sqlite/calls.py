"""The tables `calls`, `misses`, `usage` and `flows`: what clients called and missed, what flowed between calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.json import Decoder
from msgspec.structs import replace

from foretool.storage.records import Call, Event, Flow, FlowKey, Miss, MissCount, MissFilter, ToolId, Usage
from foretool.storage.sqlite.database import TOOL_IDS, Said, Subject, Table

CALLS = Table("calls", Call, flags=("hidden", "sent"), said=("arguments", "handle"))
MISSES = Table("misses", Miss, {"history": TOOL_IDS, "parts": Decoder(dict[str, float])}, said=("query", "change"))
_USAGE = Table("usage", Usage)
_FLOWS = Table("flows", Flow)
_GET_EVENTS = (
    "SELECT at, tool, outcome, handle, session, arguments FROM calls WHERE outcome <> 'refused'"
    " ORDER BY id DESC LIMIT ?"
)

_FOLD_CALLS = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, count(*), 0, max(at) FROM calls
WHERE id > ? AND id <= ? AND outcome <> 'refused' GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET calls = calls + excluded.calls, last_at = max(last_at, excluded.last_at)
"""
_FOLD_MISSES = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, 0, count(*), 0 FROM misses
WHERE id > ? AND id <= ? AND tool <> '' AND noticed NOT IN ('unknown_name', 'nothing_found') GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET misses = misses + excluded.misses
"""


_COUNT_MISSES = """
SELECT tool, cause, count(*), sum(recovered <> 'no'), sum(turns), sum(tokens), max(at), max(id) FROM misses
WHERE {} GROUP BY tool, cause ORDER BY count(*) DESC, max(at) DESC, tool
"""

_FAILING = """
SELECT tool FROM (SELECT tool, outcome FROM calls ORDER BY id DESC LIMIT ?)
WHERE outcome NOT IN ('refused', 'cancelled') GROUP BY tool HAVING max(outcome = 'ok') = 0
"""


class Calls(Subject):
    """Implements `CallStore`."""

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        if len(calls) == 1 and not misses:
            # The path of nearly every call: only the two texts that others said are looked at.
            self._database.commit(CALLS.insert, self._database.clean_places(CALLS.values(calls[0]), CALLS.places))
            return
        if not calls and not misses:
            return
        if any(not 0 <= miss.call <= len(calls) for miss in misses):
            raise ValueError(f"Miss.call is the place of a call in its batch of {len(calls)}, 1 the first, or 0")
        with self._database.atomic():
            self._database.run_all(CALLS.insert, map(CALLS.row, calls))
            # One writer at a time: the ids of a batch follow each other.
            before = self._database.last_id() - len(calls) if calls else 0
            found = (replace(miss, call=before + miss.call) if miss.call else miss for miss in misses)
            self._database.run_all(MISSES.insert, map(_miss_row, found))

    def get(self, id: int) -> Call | None:
        return CALLS.find(self._database, "WHERE id = ?", (id,))

    def recent(self, limit: int) -> list[Call]:
        return CALLS.find_all(self._database, "ORDER BY id DESC LIMIT ?", (limit,))

    def of_session(self, session: str, since: float, until: float) -> list[Call]:
        rest = "WHERE session = ? AND at >= ? AND at <= ? ORDER BY id"
        return CALLS.find_all(self._database, rest, (session, since, until))

    def events(self, limit: int) -> list[Event]:
        return [
            Event(at, "call", tool, outcome == "ok", handle, session, arguments)
            for at, tool, outcome, handle, session, arguments in reversed(self._database.rows(_GET_EVENTS, (limit,)))
        ]

    def failing(self, limit: int) -> set[ToolId]:
        return {ToolId(tool) for (tool,) in self._database.rows(_FAILING, (limit,))}

    def miss(self, id: int) -> Miss | None:
        return MISSES.find(self._database, "WHERE id = ?", (id,))

    def misses(self, since: float = 0.0, limit: int = -1) -> list[Miss]:
        return MISSES.find_all(self._database, "WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?", (since, limit))

    def find_misses(self, wanted: MissFilter, limit: int = -1) -> list[Miss]:
        where, values = _conditions(wanted)
        return MISSES.find_all(self._database, f"WHERE {where} ORDER BY at DESC, id DESC LIMIT ?", (*values, limit))

    def count_misses(self, wanted: MissFilter) -> list[MissCount]:
        where, values = _conditions(wanted)
        return [MissCount(*row) for row in self._database.rows(_COUNT_MISSES.format(where), values)]

    def usage(self) -> list[Usage]:
        self.fold_usage()
        return _USAGE.find_all(self._database, "ORDER BY calls DESC, last_at DESC, tool")

    def fold_usage(self) -> None:
        """Add new calls and misses to the table `usage`; `record` does not, so that it stays cheap."""
        with self._database.atomic():
            call, miss = self._database.row("SELECT call, miss FROM usage_folded WHERE id = 1") or (0, 0)
            newest = self._database.rows("SELECT (SELECT max(id) FROM calls), (SELECT max(id) FROM misses)")[0]
            until = (newest[0] or call, newest[1] or miss)
            if until == (call, miss):
                return
            self._database.run(_FOLD_CALLS, (call, until[0]))
            self._database.run(_FOLD_MISSES, (miss, until[1]))
            self._database.run("INSERT OR REPLACE INTO usage_folded (id, call, miss) VALUES (1, ?, ?)", until)


def _conditions(wanted: MissFilter) -> tuple[str, tuple[Any, ...]]:
    """Return the condition of a WHERE clause, and its values."""
    is_pattern = any(mark in wanted.tool for mark in "*?[")
    given: list[tuple[str, object, bool]] = [
        ("at >= ?", wanted.since, True),
        ("at < ?", wanted.until, wanted.until is not None),
        ("tool IN (SELECT exposed FROM exposed_names WHERE upstream = ?)", wanted.server, bool(wanted.server)),
        ("tool GLOB ?", wanted.tool, bool(wanted.tool) and is_pattern),
        ("instr(lower(tool), lower(?))", wanted.tool, bool(wanted.tool) and not is_pattern),
        ("cause = ?", wanted.cause, wanted.cause is not None),
        ("session IN (SELECT key FROM sessions WHERE lower(client) = lower(?))", wanted.client, bool(wanted.client)),
        ("session IN (SELECT key FROM sessions WHERE profile = ?)", wanted.profile, wanted.profile is not None),
        ("(recovered <> 'no') = ?", wanted.recovered, wanted.recovered is not None),
    ]
    used = [(condition, value) for condition, value, is_given in given if is_given]
    return " AND ".join(condition for condition, _ in used), tuple(value for _, value in used)


def _miss_row(miss: Miss) -> tuple[Any, ...]:
    # A name that no tool has is whatever the client typed.
    return MISSES.row(replace(miss, tool=Said(miss.tool)) if miss.noticed == "unknown_name" else miss)


class Flows(Subject):
    """Implements `FlowStore`."""

    def add(self, seen: Mapping[FlowKey, int], at: float) -> None:
        self._database.write_all(
            f"{_FLOWS.insert} ON CONFLICT (before, after, field, parameter)"
            " DO UPDATE SET times = times + excluded.times, last_at = excluded.last_at",
            (
                (before, after, Said(field), Said(parameter), times, at)
                for (before, after, field, parameter), times in seen.items()
            ),
        )

    def all(self) -> list[Flow]:
        return _FLOWS.find_all(self._database, "ORDER BY times DESC, before, after, field, parameter")
