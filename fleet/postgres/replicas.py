"""What the replicas of one proxy share while they run: sessions of the legacy era, the latest events of their streams,
and letters to each other.

A letter is a notification of the server (`NOTIFY`), or a row of the table `letters` where it is too long for one. What
says that a replica runs is an advisory lock of the connection on which it listens: it ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg import sql

from foretool.fleet.postgres import schema
from foretool.fleet.postgres.connecting import CHOOSE_SCHEMA, SETTINGS
from foretool.fleet.postgres.leads import KEY
from foretool.storage.engine import StorageError
from foretool.storage.places import ServerAddress
from foretool.storage.records import Letter, LiveEvent, LiveSession
from foretool.storage.sql.database import Database, Subject

_LONGEST: Final = 7_000
"""Bytes of a letter that one notification carries; the server allows less than 8,000."""
EVENTS_S: Final = 120.0
"""How long events and long letters are kept: whoever has lost a connection comes back within seconds."""
SETTLING_S: Final = 3.0
"""After the connection was lost, others get this long to come back as well before they count as gone."""
_FIRST_RETRY_S: Final = 0.1
_RETRY_S: Final = 2.0
_LONGEST_ID: Final = 18
_CHANGES: Final = "changed "
"""What a notification begins with that says which table has changed; see `schema`."""

_SAVE: Final = """
    INSERT INTO live_sessions (ident, session, principal, profile, memo, reader, revision, used_at)
    VALUES (?, ?, ?, ?, ?, ?, 1, ?) ON CONFLICT (ident) DO UPDATE SET memo = excluded.memo,
        revision = live_sessions.revision + 1, used_at = excluded.used_at
    RETURNING revision
"""
_FIND: Final = (
    "SELECT ident, session, principal, profile, memo, reader, used_at, revision FROM live_sessions WHERE ident = ?"
)
_EXPIRE: Final = """
    WITH gone AS (DELETE FROM live_sessions WHERE used_at < ? RETURNING session, used_at)
    UPDATE sessions SET ended_at = gone.used_at FROM gone WHERE sessions.key = gone.session AND ended_at IS NULL
"""
_ALIVE: Final = f"""
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {schema.LOCK} AND objsubid = 2
        AND objid = (hashtext(current_schema() || ':' || ?)::bigint & 4294967295)::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""  # noqa: S608  # a constant
_CHANNEL: Final = "'foretool_' || left(md5(current_schema()), 16)"
_decode = msgspec.json.Decoder(Letter).decode
_encode = msgspec.json.Encoder().encode


class ReplicaStore(Subject):
    """What the replicas of a proxy over HTTP share while they run. Nothing in it can be read by who has the database
    alone: texts of clients and servers are sealed by those who write them."""

    def __init__(self, database: Database, address: ServerAddress) -> None:
        super().__init__(database)
        self._address = address
        self._listening_since = 0.0
        """Monotonic seconds; 0 while there is no connection to listen on."""

    # -- sessions

    def save(self, session: LiveSession) -> int:
        """Write a session, or what has changed of it; return its new revision."""
        row = (
            session.ident, session.session, session.principal, session.profile, session.memo, session.reader,
            session.used_at,
        )  # fmt: skip
        return int(self._database.rows(_SAVE, row)[0][0])

    def find(self, ident: bytes) -> LiveSession | None:
        row = self._database.row(_FIND, (ident,))
        return LiveSession(*row) if row else None

    def set_reader(self, ident: bytes, reader: str, sender: str) -> None:
        """Record that replica `reader` carries what belongs to no request of a session; with "", that `sender` no
        longer does."""
        sql = "UPDATE live_sessions SET reader = ? WHERE ident = ? AND (? <> '' OR reader = ?)"
        self._database.run(sql, (reader, ident, reader, sender))

    def revision(self, ident: bytes) -> int:
        """Return which revision of a session is kept, 0 if none is."""
        row = self._database.row("SELECT revision FROM live_sessions WHERE ident = ?", (ident,))
        return int(row[0]) if row else 0

    def touch(self, idents: Sequence[bytes], at: float) -> None:
        """Record that sessions were used at this time."""
        self._database.write_all("UPDATE live_sessions SET used_at = ? WHERE ident = ?", [(at, one) for one in idents])

    def end(self, ident: bytes) -> bool:
        """Forget a session and its events; return whether it was kept."""
        self._database.run("DELETE FROM live_events WHERE ident = ?", (ident,))
        return self._database.run("DELETE FROM live_sessions WHERE ident = ?", (ident,)) > 0

    def clean_up(self, now: float, idle_s: float) -> None:
        """Forget old events and letters, and the sessions that nobody has used for so long (0: none)."""
        self._database.run("DELETE FROM live_events WHERE at < ?", (now - EVENTS_S,))
        self._database.run("DELETE FROM letters WHERE at < ?", (now - EVENTS_S,))
        if idle_s:
            self._database.run(_EXPIRE, (now - idle_s,))

    # -- events

    def keep_events(self, events: Sequence[LiveEvent]) -> None:
        places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(events))
        values = [each for event in events for each in msgspec.structs.astuple(event)]
        # Whoever resumes a stream sees the same event twice rather than never.
        self._database.run(
            f"INSERT INTO live_events (ident, stream, number, data, last, at) VALUES {places} ON CONFLICT DO NOTHING",  # noqa: S608
            values,
        )

    def events(self, ident: bytes, stream: str, after: int) -> list[LiveEvent]:
        """Return the events of a stream after a number, the oldest first."""
        rows = self._database.rows(
            "SELECT ident, stream, number, data, last, at FROM live_events"
            " WHERE ident = ? AND stream = ? AND number > ? ORDER BY number",
            (ident, stream, after),
        )
        return [LiveEvent(*row) for row in rows]

    # -- letters

    def post(self, letter: Letter) -> None:
        """Send a letter to other replicas."""
        said = _encode(letter)
        if len(said) > _LONGEST:
            id = self._database.insert("INSERT INTO letters (data, at) VALUES (?, ?)", (said, time.time()))
            said = b"%d" % id
        self._database.rows(f"SELECT pg_notify({_CHANNEL}, ?)", (said.decode(),))

    def is_alive(self, replica: str) -> bool:
        """Return whether a replica runs, as far as that can be known."""
        if not self._listening_since or time.monotonic() - self._listening_since < SETTLING_S:
            return True
        return self._database.row(_ALIVE, (f"replica {replica}",)) is not None

    async def listen(self, replica: str, take: Callable[[Letter], None], changed: Callable[[str], None]) -> None:
        """Count as a replica that runs, and take letters, until cancelled. `changed` is told the tables that others
        have written: approvals, artifacts, working_sets; "" where any may have changed."""
        pause = _FIRST_RETRY_S
        while True:
            try:
                connection = await self._connect(replica)
            except (psycopg.Error, OSError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RETRY_S)
                continue
            pause = _FIRST_RETRY_S
            self._listening_since = time.monotonic()
            try:
                # Whatever was said while nobody listened is looked up.
                changed("")
                async for notification in connection.notifies():
                    self._take(notification.payload, take, changed)
            except (psycopg.Error, OSError):
                pass
            finally:
                self._listening_since = 0.0
                with contextlib.suppress(psycopg.Error, OSError):
                    await connection.close()

    def _take(self, said: str, take: Callable[[Letter], None], changed: Callable[[str], None]) -> None:
        if said.startswith(_CHANGES):
            changed(said.removeprefix(_CHANGES))
            return
        # Others who may use the database can say anything here.
        with contextlib.suppress(StorageError, msgspec.MsgspecError):
            if said.isdecimal() and len(said) <= _LONGEST_ID:
                row = self._database.row("SELECT data FROM letters WHERE id = ?", (int(said),))
                if row is not None:
                    take(_decode(row[0]))
            else:
                take(_decode(said))

    async def _connect(self, replica: str) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(
            self._address.written, autocommit=True, connect_timeout=2, **SETTINGS
        )
        try:
            await connection.execute(CHOOSE_SCHEMA)
            cursor = await connection.execute(f"SELECT {_CHANNEL}")
            (channel,) = await cursor.fetchone() or ("",)
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            await connection.execute(f"SELECT pg_advisory_lock({KEY})", (f"replica {replica}",))
        except BaseException:
            await connection.close()
            raise
        return connection
