"""Turns errors of PostgreSQL into `StorageError`, which says what was found and what to do about it."""

from __future__ import annotations

import psycopg
from psycopg import errors

from foretool.storage.places import ServerAddress, find_passwords
from foretool.storage.stores import StorageError

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
        message = f"changed by another version of foretool ({said}); restart this proxy with the newer version"
        return StorageError(f"{address}: {message}", lost=True)
    if isinstance(error, errors.InsufficientPrivilege):
        return StorageError(f"{address}: {said}; grant the user of this address its schema", lost=True)
    if is_closed or isinstance(error, (*_AWAY, psycopg.InterfaceError)):
        return StorageError(f"{address}: {said}; check that the server runs and can be reached", lost=True)
    return StorageError(f"{address}: {said}; nothing was written")
