"""What an operator keeps of people: the tables `audit` (who called what, who decided what), `grants` and `consents`.

Rows of `audit` are added, and never changed or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foretool.storage.records import AuditEntry, AuditFilter
from foretool.storage.sql.database import Database, Subject
from foretool.storage.sql.tables import Repeats, Table

PAGE: Final = 1000
_AUDIT: Final = Table("audit", AuditEntry, said=("name", "client", "target", "detail"))
_WITHIN: Final = (
    "at >= :since AND at < :until AND (:principal = '' OR principal = :principal OR name = :principal"
    " OR (:subject <> '' AND principal = :subject))"
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

    def each(self, wanted: AuditFilter) -> Iterator[AuditEntry]:
        last = 0
        while True:
            page = _AUDIT.find_all(
                self._database, f"WHERE id > :last AND {_WITHIN} ORDER BY id LIMIT :limit",
                {**_values(wanted), "last": last, "limit": PAGE},
            )  # fmt: skip
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1].id


def _key(entry: AuditEntry) -> tuple[float | str, ...]:
    return entry.at, entry.principal, entry.session, entry.profile, entry.action, entry.outcome


def _values(wanted: AuditFilter) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in AuditFilter.__struct_fields__}


# The tables `grants` and `consents`: what people have allowed foretool to do at servers for them.
#
# Each row is sealed with a key that the database does not have; what is in it, this file does not know.


_SAVE: Final = (
    "INSERT INTO grants (server, person, sealed, at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (server, person) DO UPDATE SET sealed = excluded.sealed, at = excluded.at"
)
MOST_CONSENTS: Final = 10_000
"""Consents under way, and those that are over and wait for `take_late`; when there are more, those that end first make
room."""
_TRIM: Final = "DELETE FROM consents WHERE ident IN (SELECT ident FROM consents ORDER BY until DESC LIMIT -1 OFFSET ?)"


class GrantStore(Subject):
    """What people have allowed foretool to do at servers for them, sealed. No export has it."""

    def load(self, server: str, person: str) -> bytes | None:
        rows = self._database.rows("SELECT sealed FROM grants WHERE server = ? AND person = ?", (server, person))
        return bytes(rows[0][0]) if rows else None

    def save(self, server: str, person: str, sealed: bytes, at: float) -> None:
        self._database.run(_SAVE, (server, person, sealed, at))

    def replace(self, server: str, person: str, old: bytes, sealed: bytes, at: float) -> bool:
        """Save in place of `old`; return False, and change nothing, if that is not there any more."""
        sql = "UPDATE grants SET sealed = ?, at = ? WHERE server = ? AND person = ? AND sealed = ?"
        return self._database.run(sql, (sealed, at, server, person, old)) > 0

    def remove(self, server: str, person: str, old: bytes | None = None) -> bool:
        """Delete a grant, with `old` only while it is this one; return whether one went."""
        sql, values = "DELETE FROM grants WHERE server = ? AND person = ?", (server, person)
        if old is None:
            return self._database.run(sql, values) > 0
        return self._database.run(f"{sql} AND sealed = ?", (*values, old)) > 0

    def begin(self, ident: bytes, sealed: bytes, until: float) -> None:
        """Keep a consent that is under way, until a time in seconds since 1970."""
        with self._database.atomic():
            self._database.run(_TRIM, (MOST_CONSENTS - 1,))
            self._database.run("INSERT INTO consents (ident, sealed, until) VALUES (?, ?, ?)", (ident, sealed, until))

    def take(self, ident: bytes, now: float) -> bytes | None:
        """Return a consent under way, once: it is not there afterwards."""
        rows = self._database.rows("SELECT sealed FROM consents WHERE ident = ? AND until >= ?", (ident, now))
        # Of two who take it at the same time, one deletes the row.
        is_first = self._database.run("DELETE FROM consents WHERE ident = ? AND until >= ?", (ident, now)) > 0
        return bytes(rows[0][0]) if rows and is_first else None

    def take_late(self, now: float, most: int) -> list[tuple[bytes, bytes]]:
        """Return at most so many consents whose time is over, each with the ident that it was begun under, and delete
        them: each is returned once."""
        sql = "SELECT ident, sealed FROM consents WHERE until < ? ORDER BY until LIMIT ?"
        found = [(bytes(ident), bytes(sealed)) for ident, sealed in self._database.rows(sql, (now, most))]
        return [each for each in found if self._database.run("DELETE FROM consents WHERE ident = ?", (each[0],)) > 0]
