"""The table `kept_calls`: calls that take longer than their clients wait, and what came of them, for some hours."""

from __future__ import annotations

from typing import Final

from foretool.storage.records import KeptCall
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import Table

_CALLS: Final = Table("kept_calls", KeptCall, said=("reply", "record"))
_SAVE: Final = _CALLS.upsert("ident")
_SIZES: Final = "SELECT ident, length(reply) FROM kept_calls WHERE owner = ? ORDER BY started_at DESC, ident"


class KeptCallStore(Subject):
    """Calls that go on after their clients were answered. No export has them."""

    def find(self, ident: str) -> KeptCall | None:
        return _CALLS.find(self._database, "WHERE ident = ?", (ident,))

    def save(self, call: KeptCall) -> None:
        """Add a call, or replace what is known of it."""
        self._database.run(_SAVE, _CALLS.row(call))

    def shorten(self, ident: str, until: float) -> None:
        """Keep a call only until this time, if it would have been kept longer."""
        self._database.run("UPDATE kept_calls SET until = ? WHERE ident = ? AND until > ?", (until, ident, until))

    def trim(self, owner: str, most: int, most_bytes: int) -> None:
        """Delete the oldest calls of an owner who has more than so many, or more than so many bytes of results."""
        left = most_bytes
        for place, (ident, size) in enumerate(self._database.rows(_SIZES, (owner,))):
            left -= size
            if place >= most or left < 0:
                self._database.run("DELETE FROM kept_calls WHERE ident = ?", (ident,))

    def forget_old(self, now: float) -> int:
        """Delete the calls whose time is over; return how many there were."""
        return self._database.run("DELETE FROM kept_calls WHERE until < ?", (now,))
