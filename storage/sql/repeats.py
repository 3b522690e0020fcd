"""Records that are written again because the answer to a commit was lost: which of them are in the store already."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from foretool.storage.sql.database import Database

MOST_KNOWN: Final = 100_000
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
                if len(self._known) > MOST_KNOWN:
                    self._known.clear()
                self._known.update(map(self._key, self._latest))
            self._doubts = self._database.doubts
        self._latest = records = [each for each in records if self._key(each) not in self._known] if (
            self._known
        ) else records  # fmt: skip
        return records
