"""Opens connections to PostgreSQL, in the schema of foretool, which is created and migrated where needed.

A connection that hangs must not stop a proxy: every wait for the server ends after a while, and the connection with it.

Errors of PostgreSQL become `StorageError`, which says what was found and what to do about it.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.adapt import Loader

from foretool.fleet.postgres import schema
from foretool.fleet.postgres.translation import read_text
from foretool.storage.engine import NEWER_VERSION, StorageError
from foretool.storage.places import ServerAddress, find_passwords

_AWAY = (
    errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleSessionTimeout,
    errors.ReadOnlySqlTransaction,
)  # fmt: skip
_BUSY = (
    errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected, errors.SerializationFailure,
    errors.CheckViolation,  # a day was made at the same moment
)  # fmt: skip
_FULL = (errors.DiskFull, errors.TooManyConnections, errors.OutOfMemory, errors.ConfigurationLimitExceeded)
_OTHER_SCHEMA = (errors.UndefinedTable, errors.UndefinedColumn)


def explain_error(error: Exception, address: ServerAddress, *, is_closed: bool) -> StorageError:
    """Return the `StorageError` for an error; `is_closed`: the connection cannot be used any more."""
    # Not the details, which hold values of rows.
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    said = " ".join((primary or str(error)).split()) or type(error).__name__
    for password in find_passwords(address.written):
        said = said.replace(password, "[password]")
    if isinstance(error, _BUSY):
        return StorageError(f"{address}: {said}; nothing was written, try again", temporary=True)
    if isinstance(error, _FULL):
        return StorageError(f"{address}: {said}; nothing was written, give the server more room", temporary=True)
    if isinstance(error, _OTHER_SCHEMA):
        message = f"changed by another version of foretool ({said}); {NEWER_VERSION}"
        return StorageError(f"{address}: {message}", lost=True)
    if isinstance(error, errors.InsufficientPrivilege):
        return StorageError(f"{address}: {said}; grant the user of this address its schema", lost=True)
    if is_closed or isinstance(error, (*_AWAY, psycopg.InterfaceError)):
        return StorageError(f"{address}: {said}; check that the server runs and can be reached", lost=True)
    return StorageError(f"{address}: {said}; nothing was written")


OWN_SCHEMA: Final = "foretool"
"""The schema of an address that names none with `options=-c search_path=...`: others may use the same database."""
LOCK_SQL: Final = f"SELECT pg_advisory_xact_lock({schema.LOCK}, hashtext(current_schema()))"
CHOOSE_SCHEMA: Final = f"""
SELECT CASE WHEN coalesce(current_schema(), 'public') = 'public'
    THEN set_config('search_path', '{OWN_SCHEMA}', false) ELSE current_setting('search_path') END
"""
_SERVED_BY: Final = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
END_PROCESS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s
"""
_MIGRATING_MS: Final = 60_000
"""How long another process may take that migrates the tables."""
SETTINGS: Final[dict[str, Any]] = {
    # A network that swallows packets is noticed by the system, also while nothing is sent.
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 10_000,
    "application_name": "foretool", "client_encoding": "utf-8",
}  # fmt: skip


class TimedConnection(psycopg.Connection[Any]):
    """A connection on which nothing is waited for longer than `patience_s`; 0 waits as long as it takes."""

    patience_s: float = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leads: set[str] = set()
        """The kinds of work for which it has the lead."""
        self.served_by: tuple[int, Any] = (0, None)
        """The process of the server, and when that began."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout or self.patience_s or None)
        except errors._WaitTimeout:
            # What the server does with the statement is not known.
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server has not answered for {self.patience_s:g} s") from None


def connect(address: ServerAddress, busy_ms: int, patience_s: int, answer_s: float = 0.0) -> TimedConnection:
    """Connect, and choose the schema; create nothing. Raises `StorageError`.

    `busy_ms`: how long a lock is waited for. `patience_s`: how long connecting may take. `answer_s`: how long the
    answer to a statement may take, 0 for any time.
    """
    connection = None
    try:
        connection = TimedConnection.connect(
            address.written, autocommit=True, connect_timeout=patience_s, cursor_factory=psycopg.ClientCursor,
            **SETTINGS,
        )  # fmt: skip
        for type in ("text", "varchar"):
            connection.adapters.register_loader(type, _TextLoader)
        connection.adapters.register_loader("numeric", _NumberLoader)
        run = psycopg.Cursor(connection).execute
        run(CHOOSE_SCHEMA)
        # As SQLite without fsync: a crash of the server may lose the last moments, the death of a proxy loses nothing.
        if "synchronous_commit" not in address.written:
            run("SET synchronous_commit = off")
        run(f"SET lock_timeout = {int(busy_ms)}")
        connection.served_by = run(_SERVED_BY).fetchone() or (0, None)
        connection.patience_s = answer_s
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, psycopg.Error | OSError | UnicodeError):
            raise explain_error(error, address, is_closed=True) from error
        raise
    return connection


def prepare_schema(connection: TimedConnection, address: ServerAddress, *, creates: bool) -> bool:
    """Migrate the tables, after creating them if they are missing. Returns False if they are missing and `creates` is
    not set. Raises `StorageError`, and closes the connection then."""
    run = psycopg.Cursor(connection).execute
    try:
        found = schema.version(run)
        refuse_others(found, address)
        if not found and not creates:
            return False
        if not found:
            _refuse_foreign(run, address)
        if found < schema.NEWEST:
            with connection.transaction():
                run(f"SET LOCAL lock_timeout = {_MIGRATING_MS}")
                if _needs_schema(run):
                    run(f"SELECT pg_advisory_xact_lock({schema.LOCK}, 0)")
                    run(f"CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA}")
                run(LOCK_SQL)
                schema.migrate(run)
    except BaseException as error:
        connection.close()
        if isinstance(error, psycopg.Error | OSError | UnicodeError):
            raise explain_error(error, address, is_closed=True) from error
        raise
    return True


def refuse_others(version: int, address: ServerAddress) -> None:
    """Raise `StorageError` for tables of a newer version, or of one before the first release."""
    if version > schema.NEWEST:
        raise StorageError(
            f"{address}: written by a newer foretool (schema {version}, this one knows {schema.NEWEST});"
            " upgrade foretool, or set another storage address"
        )
    if 0 < version < schema.BASE:
        raise StorageError(
            f"{address}: written before the first release (schema {version}, the first is {schema.BASE}); stop"
            " foretool, keep the old tables with ALTER SCHEMA foretool RENAME TO foretool_old, and start it again"
        )


def _refuse_foreign(run: Any, address: ServerAddress) -> None:
    if run(schema.COUNT_TABLES, (OWN_SCHEMA,)).fetchone()[0]:
        raise StorageError(
            f"{address}: the schema has tables of another program; name another schema, such as"
            " options=-csearch_path%3Dforetool"
        )


def _needs_schema(run: Any) -> bool:
    return run("SELECT current_schema()").fetchone()[0] is None


class _TextLoader(Loader):
    def load(self, data: Any) -> str:
        return read_text(bytes(data).decode(errors="replace"))


class _NumberLoader(Loader):
    """Sums of whole numbers are `numeric`."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)
