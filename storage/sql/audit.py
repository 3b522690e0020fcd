"""The table `audit`: who called which tool when, and who decided what. Rows are added, and never changed or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foretool.storage.records import AuditEntry, AuditFilter
from foretool.storage.sql.database import Database, Subject
from foretool.storage.sql.repeats import Repeats
from foretool.storage.sql.tables import Table

PAGE: Final = 1000
_AUDIT: Final = Table("audit", AuditEntry, said=("name", "client", "target", "detail"))
_WITHIN: Final = (
    "at >= :since AND at < :until AND (:principal = '' OR principal = :principal OR name = :principal)"
    " AND (:action = '' OR action = :action) AND (:target = '' OR target = :target)"
)
_SAME: Final = "at = ? AND principal = ? AND session = ? AND profile = ? AND action = ? AND outcome = ?"


class AuditStore(Subject):
    """Who called what and who decided what: entries are added, and never changed or deleted."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._repeated = Repeats(database, _key, self._find)

    def add(self, entries: Sequence[AuditEntry]) -> None:
        if entries := self._repeated.leave_out(entries):
            self._database.write_all(_AUDIT.insert, map(_AUDIT.row, entries))

    def _find(self, entry: AuditEntry) -> int:
        row = self._database.row(f"SELECT id FROM audit WHERE {_SAME} LIMIT 1", _key(entry))  # noqa: S608  # a constant
        return int(row[0]) if row else 0

    def find(self, wanted: AuditFilter, limit: int = -1) -> list[AuditEntry]:
        return _AUDIT.find_all(
            self._database, f"WHERE {_WITHIN} ORDER BY id DESC LIMIT :limit", {**_values(wanted), "limit": limit}
        )

    def each(self, since: float, until: float) -> Iterator[AuditEntry]:
        """Yield the entries of a time, the oldest first."""
        last = 0
        while True:
            page = _AUDIT.find_all(
                self._database, "WHERE id > ? AND at >= ? AND at < ? ORDER BY id LIMIT ?", (last, since, until, PAGE)
            )
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1].id


def _key(entry: AuditEntry) -> tuple[float | str, ...]:
    return entry.at, entry.principal, entry.session, entry.profile, entry.action, entry.outcome


def _values(wanted: AuditFilter) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in AuditFilter.__struct_fields__}
