"""Records that are written again because the answer to a commit was lost: which of them are in the store already."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from foretool.storage.sql.database import Database
from foretool.storage.sql.tables import SET_COUNTER

_MOST_KNOWN: Final = 100_000
_MARK: Final = "mark."
"""Names of marks in `counters` begin so."""
_KEPT_MS: Final = 86_400_000
"""Milliseconds after which a mark is one of a process that has gone."""
R = TypeVar("R")


class Repeats(Generic[R]):
    """One kind of record. What is asked for together is written together, so the first of a batch speaks for all."""

    def __init__(self, database: Database, key: Callable[[R], Hashable], find: Callable[[R], int]) -> None:
        """`key`: what tells a record from every other one. `find`: returns its id, 0 if it is not in the store."""
        self._database = database
        self._key = key
        self._find = find
        self._doubts = 0
        self._latest: Sequence[R] = ()
        self._known: set[Hashable] = set()
        """Keys of records that are in the store, although whoever wrote them was not told so."""

    def leave_out(self, records: Sequence[R]) -> Sequence[R]:
        """Return those of the records that are not in the store yet; call it before writing what is returned. Who
        writes a batch again may add to it, and calls this with all of it."""
        if self._database.doubts != self._doubts:
            if self._latest and self._find(self._latest[0]):
                if len(self._known) > _MOST_KNOWN:
                    self._known.clear()
                self._known.update(map(self._key, self._latest))
            self._doubts = self._database.doubts
        self._latest = records = [each for each in records if self._key(each) not in self._known] if (
            self._known
        ) else records  # fmt: skip
        return records


class Marks:
    """Writes that add to a sum, which has no record of its own that could be looked for. Each leaves a mark in the same
    transaction: a number in the row of this process."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._name = f"{_MARK}{kind}.{secrets.token_hex(8)}"
        self._number = 0
        self._doubts = 0
        self._latest: object = None

    def is_done(self, what: object) -> bool:
        """Return whether this write is in the store, although whoever made it was not told so; call it before
        writing."""
        is_there = False
        if self._database.doubts != self._doubts:
            if what == self._latest:
                # While the database cannot be asked, the doubt stays.
                row = self._database.row("SELECT value FROM counters WHERE name = ?", (self._name,))
                is_there = row is not None and int(row[0]) == self._number
            self._doubts = self._database.doubts
        self._latest = what
        return is_there

    def leave(self) -> None:
        """Leave the mark of the write; call it inside its transaction."""
        if not self._database.may_doubt:
            return
        now = int(time.time() * 1000)
        if not self._number:
            # Of processes that have gone.
            old = now - _KEPT_MS
            self._database.run(f"DELETE FROM counters WHERE name LIKE '{_MARK}%' AND value < ?", (old,))  # noqa: S608
        self._number = max(self._number + 1, now)
        self._database.run(SET_COUNTER, (self._name, self._number))
