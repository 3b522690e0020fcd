"""Reads whole tables of the log page by page, so that memory stays small and no reader holds up the write-ahead log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from foretool.storage.records import Call, Event, Exposure, Miss, Prompt
from foretool.storage.sql.calls import CALLS, MISSES
from foretool.storage.sql.database import Subject
from foretool.storage.sql.discoveries import PROMPTS
from foretool.storage.sql.tables import TOOL_IDS

PAGE: Final = 1000
WINDOW: Final = 50 * PAGE
"""Ids among which pages are read before the days of the next ones are looked up."""
_WITHIN: Final = "WHERE id > ? AND id <= ? AND at >= ? AND at < ? AND {} ORDER BY id LIMIT ?"
_EXPOSURES: Final = (
    "SELECT session, at, policy, epoch, lists.tools, tokens, reason, exposures.id FROM exposures"
    " JOIN lists ON lists.id = exposures.list"
    " WHERE exposures.id > ? AND exposures.id <= ? AND at >= ? AND at < ? AND {} ORDER BY exposures.id LIMIT ?"
)
_EVENTS: Final = {
    "calls": "SELECT at, 'call', tool, outcome = 'ok', handle, session, arguments, id FROM calls"
    " WHERE outcome <> 'refused' AND id > ? AND id <= ? AND at >= ? AND at < ? AND {} ORDER BY id LIMIT ?",
    "discoveries": "SELECT at, 'task', task, 1, handle, session, '', id FROM discoveries"
    " WHERE task <> '' AND id > ? AND id <= ? AND at >= ? AND at < ? AND {} ORDER BY id LIMIT ?",
}


class Exporting(Subject):
    """Implements `ExportStore`."""

    def calls(self, since: float, until: float) -> Iterator[Call]:
        for row in self._pages("calls", f"{CALLS.select} {_WITHIN}", CALLS.fields.index("id"), since, until):
            yield CALLS.read(row)

    def misses(self, since: float, until: float) -> Iterator[Miss]:
        for row in self._pages("misses", f"{MISSES.select} {_WITHIN}", MISSES.fields.index("id"), since, until):
            yield MISSES.read(row)

    def exposures(self, since: float, until: float) -> Iterator[Exposure]:
        for session, at, policy, epoch, tools, tokens, reason, id in self._pages(
            "exposures", _EXPOSURES, -1, since, until
        ):
            yield Exposure(session, at, policy, epoch, TOOL_IDS.decode(tools), tokens, reason, id)

    def call_events(self, since: float, until: float) -> Iterator[Event]:
        return self._events("calls", since, until)

    def task_events(self, since: float, until: float) -> Iterator[Event]:
        return self._events("discoveries", since, until)

    def prompts(self, since: float, until: float) -> list[Prompt]:
        return PROMPTS.find_all(
            self._database, "WHERE at >= ? AND at <= ? AND text <> '' ORDER BY at, id", (since, until)
        )

    def _events(self, table: str, since: float, until: float) -> Iterator[Event]:
        for at, kind, text, ok, handle, session, arguments, _ in self._pages(table, _EVENTS[table], -1, since, until):
            yield Event(at, kind, text, bool(ok), handle, session, arguments)

    def _pages(self, table: str, query: str, id: int, since: float, until: float) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query in the order of their ids; `id`: the place of the id in a row."""
        database = self._database
        last, newest = 0, database.newest(table)
        while last < newest:
            end = last + WINDOW
            page = query.format(database.within(table, last + 1, end))
            while rows := database.rows(page, (last, end, since, until, PAGE)):
                yield from rows
                last = rows[-1][id]
            last, newest = end, max(newest, database.newest(table))
