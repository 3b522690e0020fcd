"""Rows of the tables: how records become rows and come back, which of them are in the store already, and the SQL that
every engine understands.

The SQL of this folder is what SQLite and PostgreSQL both read: `?` or `:name` for values, `LIMIT -1` for no limit.
Columns of an existing row are named with their table in `DO UPDATE`, and truth values are integers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.json import Decoder

from foretool.storage.engine import StorageError
from foretool.storage.records import ToolId
from foretool.storage.sql.database import Database, Said, Values, encode_json

R = TypeVar("R", bound=msgspec.Struct)

TOOL_IDS = Decoder(tuple[ToolId, ...])
STRINGS = Decoder(tuple[str, ...])

_SET_COUNTER: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
MAY_COUNT: Final = (
    "NOT EXISTS (SELECT 1 FROM session_people WHERE session_people.session = {table}.session"
    " AND session_people.learns = 0)"
)
"""The condition for records of a table that may count for others: none of a session whose person opted out."""
_WITH_ID: Final = frozenset({
    "artifacts", "audit", "calls", "definitions", "discoveries", "exposures", "lists", "misses", "prompts", "steps",
    "upstreams", "usage_folded",
})  # fmt: skip
_MOST_KNOWN: Final = 100_000
_MARK: Final = "mark."
"""Names of marks in `counters` begin so."""
_KEPT_MS: Final = 86_400_000
"""Milliseconds after which a mark is one of a process that has gone."""
Written = TypeVar("Written")


def row_key(table: str) -> str:
    """Return the column that tells the rows of a table apart and grows with each new row."""
    return "id" if table in _WITH_ID else "rowid"


def insert_into(table: str, columns: Sequence[str]) -> str:
    """Return the INSERT of one row; both names are constants of this folder."""
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({quote_columns(columns)}) VALUES ({places})"  # noqa: S608


def quote_columns(columns: Sequence[str]) -> str:
    """Return the columns as SQL lists them."""
    return ", ".join(f'"{column}"' for column in columns)


def read_counter(database: Database, name: str) -> int | None:
    """Return a row of `counters`; None if there is none yet."""
    row = database.row("SELECT value FROM counters WHERE name = ?", (name,))
    return int(row[0]) if row is not None else None


def raise_counter(database: Database, name: str) -> None:
    """Add 1 to a row of `counters`."""
    database.run(
        "INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counters.value + 1",
        (name,),
    )


def take_turn(database: Database, work: str, now: float, until: int) -> bool:
    """Reserve work for one process until then; return False if another process has reserved it."""
    with database.atomic():
        reserved = read_counter(database, work)
        if reserved is not None and reserved > now:
            return False
        database.run(_SET_COUNTER, (work, until))
    return True


class Table(Generic[R]):
    """Turns records of one type into rows of the table whose columns have the names of their fields, and back.

    `decoders` read the fields that are kept as JSON; `flags` are the fields that are booleans; `said` are those that a
    user, a client or a server wrote. With `is_checked` the type of every field is looked at when it is read.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        decoders: Mapping[str, Decoder[Any]] = {},
        flags: Sequence[str] = (),
        said: Sequence[str] = (),
        is_checked: bool = False,
    ) -> None:
        self._name = name
        fields = record.__struct_fields__
        columns = [field for field in fields if field != "id"]
        self.columns = columns
        self.fields = fields
        self.insert = insert_into(name, columns)
        self.select = f"SELECT {quote_columns(fields)} FROM {name}"  # noqa: S608  # a constant of this folder
        self.said = frozenset(said)
        self.places = tuple(columns.index(field) for field in said)
        """Where in `values` the texts stand that others said."""
        self.values: Callable[[R], tuple[Any, ...]] = attrgetter(*columns)
        """Returns the fields of a record as they are."""
        self.row: Callable[[R], tuple[Any, ...]] = self.values
        if decoders or said:
            get = self.values
            encoded, marked = ([columns.index(field) for field in some] for some in (decoders, said))
            self.row = lambda each: _encode_fields(get(each), encoded, marked)
        self._record = record
        self._readers = [(fields.index(field), decoder.decode) for field, decoder in decoders.items()]
        self._readers += [(fields.index(field), bool) for field in flags]
        self._is_checked = is_checked

    def upsert(self, *key: str) -> str:
        """Return the INSERT of one row, which takes the place of a row with the same key."""
        others = ", ".join(f'"{each}" = excluded."{each}"' for each in self.columns if each not in key)
        return f"{self.insert} ON CONFLICT ({quote_columns(key)}) DO UPDATE SET {others}"

    def find(self, database: Database, rest: str, values: Values = ()) -> R | None:
        """Return the first record of a query; `rest` is what follows the table's name in the SELECT."""
        row = database.row(f"{self.select} {rest}", values)
        return self.read(row) if row else None

    def find_all(self, database: Database, rest: str, values: Values = ()) -> list[R]:
        """Return all records of a query."""
        return [self.read(row) for row in database.rows(f"{self.select} {rest}", values)]

    def read(self, row: Sequence[Any]) -> R:
        """Return the record of a row that `select` found. Raises `StorageError` for one that we have not written."""
        values = list(row)
        for place, reader in self._readers:
            values[place] = read_kept(reader, values[place], self._name)
        if self._is_checked:
            read_kept(
                partial(msgspec.convert, type=self._record, builtin_types=(bytes,)),
                dict(zip(self.fields, values, strict=True)),
                self._name,
            )
        return self._record(*values)


def read_kept(reader: Callable[[Any], Any], value: Any, table: str) -> Any:
    """Decode a value of a table by `reader`. Raises `StorageError` for one that foretool has not written."""
    try:
        return reader(value)
    except (ValueError, TypeError) as error:  # msgspec's among them
        what = f"the storage has a record that foretool did not write (table {table}: {error})"
        raise StorageError(f"{what}; move the file away, or restore a copy") from error


def _encode_fields(row: tuple[Any, ...], encoded: Sequence[int], said: Sequence[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in encoded:
        values[place] = encode_json(values[place])
    for place in said:
        if value := values[place]:
            values[place] = Said(value)
    return tuple(values)


class Repeats(Generic[Written]):
    """Makes inserts of one kind of record repeatable: after a commit whose answer was lost, finds out which records are
    in the store. The records of one batch are written together, so the first of them stands for all."""

    def __init__(self, database: Database, key: Callable[[Written], Hashable], find: Callable[[Written], int]) -> None:
        """`key`: what tells a record from every other one. `find`: returns its id, 0 if it is not in the store."""
        self._database = database
        self._key = key
        self._find = find
        self._doubts = 0
        self._latest: Sequence[Written] = ()
        self._known: set[Hashable] = set()
        """Keys of records that are in the store, although whoever wrote them was not told so."""

    def leave_out(self, records: Sequence[Written]) -> Sequence[Written]:
        """Return the records that are not in the store yet; call it before writing them. A batch that is written again
        may have grown: pass all of it."""
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
    """Makes additions to a sum repeatable. A sum has no record that tells whether an addition was written when its
    commit got no answer, so each addition leaves a number in this process's row, in the same transaction."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._name = f"{_MARK}{kind}.{secrets.token_hex(8)}"
        self._number = 0
        self._doubts = 0
        self._latest: object = None

    def is_done(self, what: object) -> bool:
        """Return whether this addition is in the store already, although the answer to its commit was lost. Call it
        before adding."""
        is_there = False
        if self._database.doubts != self._doubts:
            if what == self._latest:
                # While the database cannot be asked, the doubt stays.
                is_there = read_counter(self._database, self._name) == self._number
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
        self._database.run(_SET_COUNTER, (self._name, self._number))
