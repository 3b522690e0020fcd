"""Connects to PostgreSQL and runs statements; a server that cannot be reached makes a proxy wait, not end.

The connection is in autocommit mode, so every transaction is one that this file begins. An `atomic` block takes an
advisory lock, as SQLite takes the lock of its file: what one process reads in it stays true until its end. A single
call is written without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from foretool.fleet.postgres import schema
from foretool.fleet.postgres.connecting import (
    END_PROCESS,
    LOCK_SQL,
    TimedConnection,
    connect,
    explain_error,
    prepare_schema,
)
from foretool.fleet.postgres.leads import ServerLead
from foretool.fleet.postgres.replicas import ReplicaStore
from foretool.fleet.postgres.translation import regular_expression, translate, write_values
from foretool.storage.engine import NEWER_VERSION, StorageError
from foretool.storage.places import ServerAddress
from foretool.storage.sql.database import Database, Values

_OPENING_S: Final = 10
_SERVING_S: Final = 2
"""How long connecting may take: when a command opens the store, and when a proxy does."""
_HURRY_MS: Final = 100
"""Who waits no longer than this for a lock does not wait longer for the server either."""
ANSWER_S: Final = 5.0
"""How long a proxy waits for an answer of the server. Then it goes on without it until it can be reached."""
_LATEST_S: Final = 120.0
"""How long a process of the server that did not answer is waited for until it counts as gone."""
_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
"""
_TRIES: Final = 20
_TRY_S: Final = 0.05
"""How often it is looked whether such a process has ended, and the pause, before a proxy goes on without a database."""
_OWN_BUSY_MS: Final = 5000


class PostgresDatabase(Database):
    """One open connection."""

    may_doubt = True

    def __init__(self, address: ServerAddress, busy_ms: int, *, serves: bool = False) -> None:
        super().__init__(address, serves=serves)
        self.address = address
        self._busy_ms = busy_ms
        self._held: TimedConnection | None = None
        self._depth = 0
        self.replicas = ReplicaStore(self, address)
        self._doubtful: tuple[int, Any] = (0, None)
        """The process of the server that may still make a commit whose answer was lost; see
        `TimedConnection.served_by`."""
        self._doubtful_since = 0.0

    @classmethod
    def open(cls, address: ServerAddress, busy_ms: int, *, creates: bool = True) -> PostgresDatabase | None:
        """Connect; create and migrate the tables if needed. Without `creates`, return None where there are none.
        Raises `StorageError`."""
        database = cls(address, busy_ms)
        patience_s = _OPENING_S if busy_ms > _HURRY_MS else 1
        connection = connect(address, busy_ms, patience_s)
        if not prepare_schema(connection, address, creates=creates):
            connection.close()
            return None
        database._held = connection
        return database

    @classmethod
    def open_to_serve(cls, address: ServerAddress, busy_ms: int) -> PostgresDatabase:
        """Connect if the server can be had at once; otherwise wait for it as `reopen` does. Never raises."""
        database = cls(address, busy_ms, serves=True)
        database.reopen()
        return database

    # A server that cannot be reached

    @property
    def _connection(self) -> TimedConnection:
        if self._held is None:
            raise self._missing()
        return self._held

    def _explain(self, error: Exception) -> StorageError:
        """Return what to raise for an error of psycopg; let go of a connection that cannot be used any more."""
        held = self._held
        return self._take(explain_error(error, self.address, is_closed=held is None or held.closed or held.broken))

    def check(self) -> None:
        if self._held is None or not self._serves:
            return
        with suppress(StorageError):
            found = int(self.rows("SELECT coalesce(max(number), 0) FROM migrations")[0][0])
            newer = f"{self.path}: changed by a newer foretool (schema {found}); {NEWER_VERSION}"
            self.notice = newer if found > schema.NEWEST else ""

    def reopen(self) -> bool:
        if self._held is not None:
            return True
        try:
            found = connect(self.address, self._busy_ms, _SERVING_S, ANSWER_S)
            self._end_doubtful(found)
            prepare_schema(found, self.address, creates=True)
        except StorageError as error:
            # The first reason stays: who waits for the server is told once.
            self.trouble = self.trouble or str(error)
            return False
        self.trouble, self._held = "", found
        return True

    def _end_doubtful(self, connection: TimedConnection) -> None:
        """Let nobody look for a commit that the server may still make."""
        if not self._doubtful[0]:
            return
        try:
            for _ in range(_TRIES):
                is_there = bool(psycopg.Cursor(connection).execute(END_PROCESS, self._doubtful).fetchall())
                if not is_there:
                    break
                time.sleep(_TRY_S)
        except (psycopg.Error, OSError) as error:
            connection.close()
            raise explain_error(error, self.address, is_closed=True) from error
        if is_there and time.monotonic() - self._doubtful_since < _LATEST_S:
            connection.close()
            raise StorageError(
                f"{self.address}: the process {self._doubtful[0]} of the server that did not answer has not ended yet;"
                " check the server's disks",
                temporary=True,
            )
        self._doubtful = (0, None)

    # Transactions

    @contextmanager
    def atomic(self) -> Iterator[None]:
        is_outermost = not self._depth
        with self._block("BEGIN"):
            if is_outermost:
                self._execute(LOCK_SQL, ())
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._block("BEGIN ISOLATION LEVEL REPEATABLE READ"):
            yield

    def settle_writes(self, *tables: str) -> None:
        # Ids are given before rows are committed, so a lesser one may come later.
        self._execute(f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE", ())

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        name = f"block_{self._depth}"
        is_inner = self._depth > 0
        self._execute(f"SAVEPOINT {name}" if is_inner else begin, ())
        self._depth += 1
        try:
            yield
            if is_inner:
                self._execute(f"RELEASE {name}", ())
            else:
                self._commit()
        except BaseException:
            with suppress(StorageError):
                if self._held is not None:
                    self._execute(f"ROLLBACK TO {name}" if is_inner else "ROLLBACK", ())
            raise
        finally:
            self._depth -= 1

    # Statements

    def commit(self, sql: str, values: Sequence[Any]) -> None:
        try:
            # Parsed and planned by the server once.
            psycopg.Cursor(self._connection).execute(translate(sql), write_values(values), prepare=True)
        except (psycopg.Error, OSError) as error:
            raise self._doubt(error) from error

    def insert_linked(
        self,
        parent_sql: str,
        parents: Sequence[Sequence[Any]],
        child_sql: str,
        children: Sequence[tuple[int, list[Any]]],
    ) -> None:
        # All in one round trip: a child stands behind its parent and takes the id that was given last.
        table = parent_sql.split()[2]
        sequence = f"currval(pg_get_serial_sequence('{table}', 'id'))"
        linked = translate(f"{child_sql.rpartition('?')[0]}{sequence})")
        by_place: dict[int, list[list[Any]]] = {}
        for place, row in children:
            by_place.setdefault(place, []).append(row)
        try:
            cursor = psycopg.Cursor(self._connection)
            # What stands between two synchronisations is one transaction.
            with self._connection.pipeline():
                for place, parent in enumerate(parents, 1):
                    cursor.execute(translate(parent_sql), write_values(self._clean(parent)), prepare=True)
                    for child in by_place.get(place, ()):
                        cursor.execute(linked, write_values(self._clean(child)[:-1]), prepare=True)
                for row in by_place.get(0, ()):
                    cursor.execute(translate(child_sql), write_values(self._clean(row)), prepare=True)
        except (psycopg.Error, OSError) as error:
            raise self._doubt(error) from error

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except (psycopg.Error, OSError) as error:
            raise self._doubt(error) from error

    def _doubt(self, error: Exception) -> StorageError:
        """Return what to raise for an error of a commit."""
        held = self._held
        # An error that the server reports for a statement has undone it.
        if held is not None and (held.closed or held.broken):
            self.doubts += 1
            self._doubtful, self._doubtful_since = held.served_by, time.monotonic()
        return self._explain(error)

    def run(self, sql: str, values: Values = ()) -> int:
        return self._execute(translate(sql), self._clean(values)).rowcount

    def _execute(self, sql: str, values: Values) -> psycopg.Cursor[Any]:
        try:
            return self._connection.execute(sql, write_values(values))
        except (psycopg.Error, OSError) as error:
            raise self._explain(error) from error

    def run_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._run_many(sql, [self._clean(row) for row in rows])

    def _run_many(self, sql: str, rows: list[Any], *, returning: bool = False) -> psycopg.Cursor[Any]:
        try:
            cursor = psycopg.Cursor(self._connection)
            cursor.executemany(translate(sql), [write_values(row) for row in rows], returning=returning)
        except (psycopg.Error, OSError) as error:
            raise self._explain(error) from error
        return cursor

    def insert(self, sql: str, row: Sequence[Any]) -> int:
        try:
            cursor = self._connection.execute(translate(f"{sql} RETURNING id"), write_values(self._clean(row)))
        except (psycopg.Error, OSError) as error:
            # Inside of a block nothing is committed yet.
            raise self._explain(error) if self._depth else self._doubt(error) from error
        return int(cursor.fetchall()[0][0])

    def insert_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        if not rows:
            return []
        cursor = self._run_many(f"{sql} RETURNING id", [self._clean(row) for row in rows], returning=True)
        ids = []
        while True:
            ids += [int(id) for (id,) in cursor.fetchall()]
            if not cursor.nextset():
                return ids

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._execute(translate(sql), self._clean(values)).fetchall()

    def each_row(self, sql: str, values: Values = ()) -> Iterator[tuple[Any, ...]]:
        # A connection sends one result at a time, and the caller may ask for something else meanwhile.
        with self.own() as own:
            assert isinstance(own, PostgresDatabase)
            try:
                yield from psycopg.ClientCursor(own._connection).stream(
                    translate(sql), write_values(self._clean(values))
                )
            except (psycopg.Error, OSError) as error:
                raise own._explain(error) from error

    # Where engines differ

    def match_tool(self, column: str, written: str) -> tuple[str, str]:
        if any(mark in written for mark in "*?["):
            return f"{column} ~ ?", regular_expression(written)
        return f"position(lower(?) in lower({column})) > 0", written

    def as_text(self, column: str) -> str:
        return f"convert_from({column}, 'UTF8')"

    @property
    def json_strings(self) -> str:
        return "SELECT value FROM jsonb_array_elements_text(?::jsonb)"

    def size(self) -> int:
        return int(self.rows(_SIZE)[0][0])

    def lead(self, work: str) -> ServerLead:
        return ServerLead(lambda: self._held, self._explain, work)

    def _open_own(self) -> PostgresDatabase | None:
        return PostgresDatabase.open(self.address, _OWN_BUSY_MS)

    # Records by their ids

    def newest_sql(self, table: str) -> str:
        return f"coalesce(pg_sequence_last_value(pg_get_serial_sequence('{table}', 'id')::regclass), 0)"

    # Upkeep: the server does its own

    @property
    def is_checkpoint_due(self) -> bool:
        return False

    def checkpoint(self) -> int:
        return 0

    def give_back_room(self) -> None:
        pass

    def compact(self) -> bool:
        for (table,) in self.rows("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace ="
                                  " current_schema()::regnamespace"):  # fmt: skip
            self.run(f"VACUUM {table}")
        return True
