"""Rows of the tables: how records become rows and come back, and the SQL that every engine understands.

The SQL of this folder is what SQLite and PostgreSQL both read: `?` or `:name` for values, `LIMIT -1` for no limit.
Columns of an existing row are named with their table in `DO UPDATE`, and truth values are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.json import Decoder

from foretool.storage.records import ToolId
from foretool.storage.sql.database import Database, Said, Values, encode_json

R = TypeVar("R", bound=msgspec.Struct)

TOOL_IDS = Decoder(tuple[ToolId, ...])
STRINGS = Decoder(tuple[str, ...])

SET_COUNTER: Final = (
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


class Table(Generic[R]):
    """Turns records of one type into rows of the table whose columns have the names of their fields, and back.

    `decoders` read the fields that are kept as JSON; `flags` are the fields that are booleans; `said` are those that a
    user, a client or a server wrote.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        decoders: Mapping[str, Decoder[Any]] = {},
        flags: Sequence[str] = (),
        said: Sequence[str] = (),
    ) -> None:
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
        """Return the record of a row that `select` found."""
        values = list(row)
        for place, reader in self._readers:
            values[place] = reader(values[place])
        return self._record(*values)


def _encode_fields(row: tuple[Any, ...], encoded: Sequence[int], said: Sequence[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in encoded:
        values[place] = encode_json(values[place])
    for place in said:
        if value := values[place]:
            values[place] = Said(value)
    return tuple(values)
