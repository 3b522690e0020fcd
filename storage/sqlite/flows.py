"""The table `flows`: which tools' results came back as arguments of which other tools."""

from __future__ import annotations

from collections.abc import Mapping

from foretool.storage.records import Flow, FlowKey
from foretool.storage.sqlite.database import Database

_COLUMNS = "before, after, field, parameter, times, last_at"


class Flows:
    """Implements `FlowStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, seen: Mapping[FlowKey, int], at: float) -> None:
        self._database.write_all(
            f"INSERT INTO flows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608  # a constant
            " ON CONFLICT (before, after, field, parameter)"
            " DO UPDATE SET times = times + excluded.times, last_at = excluded.last_at",
            ((*key, times, at) for key, times in seen.items()),
        )

    def all(self) -> list[Flow]:
        sql = f"SELECT {_COLUMNS} FROM flows ORDER BY times DESC, before, after, field, parameter"  # noqa: S608
        return [Flow(*row) for row in self._database.rows(sql)]

    def prune(self, before: float) -> None:
        self._database.write_all("DELETE FROM flows WHERE last_at < ?", [(before,)])
