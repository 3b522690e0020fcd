"""Work that only one process does for a database: whoever holds an advisory lock of the server has the lead.

The lock belongs to the connection of the store. So it ends when the process ends, its machine dies or the server
restarts, and who has lost the connection has lost the lead. The name of the connection says who has the lead and what
it does, for people who ask; nobody decides by what it says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from foretool.fleet.postgres import schema
from foretool.fleet.postgres.connecting import TimedConnection
from foretool.storage.engine import BEAT_S, Lead, StorageError
from foretool.storage.records import Holder

KEY: Final = f"{schema.LOCK}, hashtext(current_schema() || ':' || %s)"
_HOLDER: Final = f"""
SELECT coalesce(application_name, ''), coalesce(host(client_addr), ''),
    extract(epoch FROM coalesce(backend_start, now()))::float8,
    extract(epoch FROM coalesce(state_change, now()))::float8
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = {schema.LOCK} AND objsubid = 2
    AND objid = (hashtext(current_schema() || ':' || %s)::bigint & 4294967295)::oid
    AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""  # noqa: S608  # a constant
_LONGEST: Final = 63
"""Bytes that the server keeps of the name of a connection."""


class ServerLead(Lead):
    """A lead that is a lock in the database."""

    def __init__(
        self, connection: Callable[[], TimedConnection | None], explain: Callable[[Exception], StorageError], work: str
    ) -> None:
        """`connection` returns that of the store, None while it has none. `explain` turns errors into ours."""
        self._connection = connection
        self._explain = explain
        self._work = work
        self._locked: TimedConnection | None = None
        """The connection that has the lock."""
        self._beat_at = 0.0

    @property
    def is_held(self) -> bool:
        return self._locked is not None and self._locked is self._connection() and not self._locked.closed

    def take(self) -> bool:
        if self.is_held:
            return True
        connection = self._connection()
        if connection is None:
            raise StorageError(f"{self._work}: no connection to the server", temporary=True)
        # The server would give a connection the same lock twice.
        if self._work in connection.leads:
            return False
        ((is_ours,),) = self._ask(connection, f"SELECT pg_try_advisory_lock({KEY})", (self._work,))
        if is_ours:
            connection.leads.add(self._work)
            self._locked, self._beat_at = connection, 0.0
            self.beat("")
            self._beat_at = 0.0  # what is done first is worth to be known
        return bool(is_ours)

    def beat(self, doing: str) -> None:
        now = time.monotonic()
        if not self.is_held or self._locked is None or (self._beat_at and now - self._beat_at < BEAT_S):
            return
        self._beat_at = now
        name = f"foretool {self._work} {os.getpid()} {doing}".strip().encode("ascii", "replace")[:_LONGEST].decode()
        self._ask(self._locked, "SELECT set_config('application_name', %s, false)", (name,))

    def holder(self) -> Holder | None:
        connection = self._connection()
        if connection is None:
            return None
        found = self._ask(connection, _HOLDER, (self._work,))
        if not found:
            return None
        name, machine, since, at = found[0]
        words = name.split(" ", 3)
        is_told = len(words) >= 3 and words[:2] == ["foretool", self._work] and words[2].isdecimal()
        pid, doing = (int(words[2]), "".join(words[3:])) if is_told else (0, "")
        return Holder(pid, since, at, doing, machine)

    def release(self) -> None:
        connection, self._locked = self._locked, None
        if connection is None:
            return
        connection.leads.discard(self._work)
        if connection is self._connection() and not connection.closed:
            try:
                self._ask(connection, f"SELECT pg_advisory_unlock({KEY})", (self._work,))
                self._ask(connection, "SELECT set_config('application_name', 'foretool', false)", ())
            except StorageError:
                return  # the server has dropped the lock with the connection

    def _ask(self, connection: TimedConnection, sql: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            return psycopg.Cursor(connection, row_factory=tuple_row).execute(sql, values).fetchall()
        except (psycopg.Error, OSError) as error:
            raise self._explain(error) from error
