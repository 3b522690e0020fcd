"""The tables `calls`, `misses` and `usage`: what clients called, and which needed tools they did not see."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.json import Decoder
from msgspec.structs import replace

from foretool.storage.records import Call, Event, Miss, Usage
from foretool.storage.sqlite.database import TOOL_IDS, Database, Table

_CALLS = Table("calls", Call, flags=("hidden", "sent"))
_MISSES = Table("misses", Miss, {"history": TOOL_IDS, "parts": Decoder(dict[str, float])})
_GET_EVENTS = "SELECT at, tool, outcome, handle, session FROM calls ORDER BY id DESC LIMIT ?"

_FOLD_CALLS = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, count(*), 0, max(at) FROM calls WHERE id > ? AND id <= ? GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET calls = calls + excluded.calls, last_at = max(last_at, excluded.last_at)
"""
_FOLD_MISSES = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, 0, count(*), 0 FROM misses
WHERE id > ? AND id <= ? AND tool <> '' AND noticed NOT IN ('unknown_name', 'nothing_found') GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET misses = misses + excluded.misses
"""


class Calls:
    """Implements `CallStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        if len(calls) == 1 and not misses:
            self._database.commit(_CALLS.insert, _CALLS.row(calls[0]))
            return
        if not calls and not misses:
            return
        if any(not 0 <= miss.call <= len(calls) for miss in misses):
            raise ValueError(f"Miss.call is the place of a call in its batch of {len(calls)}, 1 the first, or 0")
        with self._database.atomic():
            self._database.run_all(_CALLS.insert, map(_CALLS.row, calls))
            # One writer at a time: the ids of a batch follow each other.
            before = self._database.last_id() - len(calls) if calls else 0
            found = (replace(miss, call=before + miss.call) if miss.call else miss for miss in misses)
            self._database.run_all(_MISSES.insert, map(_MISSES.row, found))

    def get(self, id: int) -> Call | None:
        row = self._database.row(f"{_CALLS.select} WHERE id = ?", (id,))
        return _CALLS.read(row) if row else None

    def recent(self, limit: int) -> list[Call]:
        return _CALLS.read_all(self._database.rows(f"{_CALLS.select} ORDER BY id DESC LIMIT ?", (limit,)))

    def events(self, limit: int) -> list[Event]:
        return [
            Event(at, "call", tool, outcome == "ok", handle, session)
            for at, tool, outcome, handle, session in reversed(self._database.rows(_GET_EVENTS, (limit,)))
        ]

    def miss(self, id: int) -> Miss | None:
        row = self._database.row(f"{_MISSES.select} WHERE id = ?", (id,))
        return _MISSES.read(row) if row else None

    def misses(self, since: float = 0.0, limit: int = -1) -> list[Miss]:
        sql = f"{_MISSES.select} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?"
        return _MISSES.read_all(self._database.rows(sql, (since, limit)))

    def count_causes(self, since: float) -> dict[str, int]:
        sql = "SELECT cause, count(*) FROM misses WHERE at >= ? GROUP BY cause ORDER BY count(*) DESC, cause"
        return dict(self._database.rows(sql, (since,)))

    def usage(self) -> list[Usage]:
        self._fold_usage()
        sql = "SELECT tool, calls, misses, last_at FROM usage ORDER BY calls DESC, last_at DESC, tool"
        return [Usage(*row) for row in self._database.rows(sql)]

    def _fold_usage(self) -> None:
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
