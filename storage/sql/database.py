"""What a database engine does for the subjects of the store: statements, transactions, and the few words of SQL in
which engines differ.

Values of rows are written as JSON, text without unpaired surrogates, and text that others said.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from foretool.storage.engine import Lead, StorageError
from foretool.storage.places import StorePlace
from foretool.storage.redaction import KnownSecrets, Redaction

Values = Sequence[Any] | Mapping[str, Any]


class Said(str):
    """A text that a user, a client or a server wrote: secrets are taken out of it before it is written.

    Names of tools, keys and hashes are no such texts: they must stay what they are, or records would not fit together.
    """

    __slots__ = ()


def encode_json(value: object) -> str:
    """Return the JSON of a value; an unpaired surrogate in it becomes a question mark."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(_replace_surrogate(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)))


def is_writable(value: object) -> bool:
    return not isinstance(value, str) or value.isascii() or _replace_surrogate(value) == value


def replace_surrogates(values: Values) -> Any:
    """Put question marks in place of unpaired surrogates, which JSON may contain and UTF-8 may not."""
    if isinstance(values, Mapping):
        return {key: _replace_surrogate(value) for key, value in values.items()}
    return [_replace_surrogate(value) for value in values]


def _replace_surrogate(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


class Database(ABC):
    """One open connection. One thread uses it, except for `checkpoint`; other threads and processes open their own.

    Every method may raise `StorageError`. A write that raised has left nothing behind and may be repeated.
    """

    may_doubt: bool = False
    """Whether the answer to a commit can be lost."""
    doubts: int = 0
    """How often the connection was lost while a commit was under way, which may have been made. Who repeats it looks
    first; see `Repeats`."""
    trouble: str = ""
    """Why the database cannot be used now; see `Store.trouble`."""
    notice: str = ""
    replicas: Any = None
    """What replicas share where many machines can have the database: `fleet.postgres.replicas.ReplicaStore`."""
    gives_ids_again: bool = False
    """Whether the ids of deleted records may be given to new ones."""

    def __init__(self, path: StorePlace | str, *, serves: bool) -> None:
        """`path`: where the database is. `serves`: let go of a database
        that cannot be used, and wait until `reopen` can use it again."""
        self.path = path
        self._serves = serves
        self._held: Any = None
        """The connection; None where there is none."""
        self._redaction = Redaction()

    # A database that cannot be used

    def _missing(self) -> StorageError:
        """Return what to raise where there is no connection."""
        return StorageError(self.trouble or f"{self.path}: closed", temporary=True)

    def _take(self, found: StorageError) -> StorageError:
        """Return what to raise for an error; let go of a database that cannot be used any more."""
        if not (found.lost and self._serves):
            return found
        self._let_go(str(found))
        return StorageError(str(found), temporary=True)

    def _let_go(self, trouble: str) -> None:
        self.trouble, self.notice = trouble, ""
        self.close()

    # Secrets

    def hide(self, known: Callable[[], KnownSecrets]) -> None:
        """Keep these secrets out of every text from now on, as well as whatever looks like a secret."""
        self._redaction = Redaction(known)

    def hide_like(self, other: Database) -> None:
        """Keep out the same secrets as another connection does."""
        self._redaction = Redaction(other._redaction.known)

    def clean(self, text: str) -> str:
        """Return a text without secrets, as it may be written."""
        return self._redaction.clean(text)

    def clean_places(self, values: tuple[Any, ...], places: Iterable[int]) -> tuple[Any, ...]:
        """Return the values without the secrets in those at these places."""
        for place in places:
            if (value := values[place]) and (cleaned := self._redaction.clean(value)) is not value:
                values = (*values[:place], cleaned, *values[place + 1 :])
        return values

    def _clean(self, values: Any) -> Any:
        """Return the values without the secrets in what others said. Those of a query too, so that it finds them."""
        # Each call is recorded through here, and most rows hold nothing that others said.
        if type(values) is dict or Said not in map(type, values):
            return values
        clean = self._redaction.clean
        return [str(clean(value)) if type(value) is Said else value for value in values]

    # Transactions

    @abstractmethod
    def atomic(self) -> AbstractContextManager[None]:
        """Write everything inside the block, or nothing; blocks nest. No other `atomic` block runs meanwhile, so keep
        it short and never await in it. Let a `StorageError` leave the outermost block."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Read one state of the database inside the block, whatever others write meanwhile."""

    @abstractmethod
    def settle_writes(self, *tables: str) -> None:
        """Inside `atomic`: wait until every row is visible whose id is less than one that is visible already."""

    # Statements

    @abstractmethod
    def commit(self, sql: str, values: Sequence[Any]) -> None:
        """Write one clean row in a commit of its own, without the cost of an `atomic` block."""

    @abstractmethod
    def run(self, sql: str, values: Values = ()) -> int:
        """Run one statement; return how many rows it wrote."""

    @abstractmethod
    def run_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row; call it inside `atomic`."""

    def write_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row, in one transaction."""
        with self.atomic():
            self.run_all(sql, rows)

    @abstractmethod
    def insert(self, sql: str, row: Sequence[Any]) -> int:
        """Insert one row into a table with ids; return its id."""

    @abstractmethod
    def insert_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Insert rows into a table with ids, inside `atomic`; return their ids in the order of the rows."""

    def insert_linked(
        self,
        parent_sql: str,
        parents: Sequence[Sequence[Any]],
        child_sql: str,
        children: Sequence[tuple[int, list[Any]]],
    ) -> None:
        """Insert rows, and rows that refer to them, in one transaction.

        A child is the place of its parent, counted from 1, and its row, whose last value becomes the parent's id; place
        0 keeps that value.
        """
        with self.atomic():
            ids = self.insert_all(parent_sql, parents)
            self.run_all(child_sql, [[*row[:-1], ids[place - 1]] if place else row for place, row in children])

    @abstractmethod
    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def each_row(self, sql: str, values: Values = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one, for a query with many rows of which little is kept."""

    def row(self, sql: str, values: Values = ()) -> tuple[Any, ...] | None:
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    # Where engines differ

    @abstractmethod
    def match_tool(self, column: str, written: str) -> tuple[str, str]:
        """Return the condition, with one value, for names that match a pattern (`*`, `?`, `[...]`), or that contain
        the text where it has no such mark, and that value."""

    @abstractmethod
    def as_text(self, column: str) -> str:
        """Return the SQL that reads a column of bytes as text."""

    @property
    @abstractmethod
    def json_strings(self) -> str:
        """The query, with one value, for the strings of a JSON array; its column is `value`."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that the database takes."""

    @abstractmethod
    def lead(self, work: str) -> Lead:
        """Return the lead for a kind of work; see `Store.lead`."""

    @contextmanager
    def own(self) -> Iterator[Database]:
        """Give the thread that asks a connection of its own, for upkeep that may wait longer for other writers. In
        memory there is one connection, and it is that one."""
        own = self._open_own()
        if own is None:
            yield self
            return
        own.hide_like(self)
        try:
            yield own
        finally:
            own.close()

    @abstractmethod
    def _open_own(self) -> Database | None:
        """Open another connection to the same database, None if there can be only one."""

    # Records by their ids

    def newest(self, table: str) -> int:
        """Return an id that no record of a table exceeds and that every later record will exceed; 0 for a table that
        never had a record."""
        return int(self.rows(f"SELECT {self.newest_sql(table)}")[0][0])

    @abstractmethod
    def newest_sql(self, table: str) -> str:
        """Return the SQL of `newest`."""

    # Upkeep

    @property
    @abstractmethod
    def is_checkpoint_due(self) -> bool:
        """Whether enough was written since the last `checkpoint` to be worth a thread."""

    @abstractmethod
    def checkpoint(self) -> int:
        """Do the upkeep that would slow down later writes; see `Store.checkpoint`."""

    @abstractmethod
    def give_back_room(self) -> None:
        """Give the room of what was deleted back to the system, a little at a time."""

    @abstractmethod
    def compact(self) -> bool:
        """Remove every trace of what was deleted; see `ForgetStore.compact`."""

    @abstractmethod
    def check(self) -> None:
        """Notice cheaply that another database has taken the place of the one that was opened; see `Store.check`."""

    @abstractmethod
    def reopen(self) -> bool:
        """Try to use the database again, from any thread; return whether it can be used. See `Store.reopen`."""

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


class Subject:
    """One subject of the store: its own tables in the open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
