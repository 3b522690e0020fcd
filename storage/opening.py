"""Opens and examines a store; the only place that knows which database engine is below."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretool.storage.sql.store import SqlStore
from foretool.storage.sqlite.copying import copy_file
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.sqlite.files import find_exposure, find_open_files
from foretool.storage.sqlite.health import examine
from foretool.storage.stores import StorageError

if TYPE_CHECKING:
    from foretool.storage.postgres.database import PostgresDatabase
    from foretool.storage.records import Health
    from foretool.storage.stores import Store


def open_store(path: Path | str, *, busy_ms: int = 250) -> Store:
    """Open the store at `path`. Create it if it is missing (directory 0700, file 0600), and migrate an older one.

    `path` is a file, ":memory:", or the address of a PostgreSQL database: `postgresql://user:password@host/database`.
    A file of ours that other users may read is closed to them.

    `busy_ms` is how long a later write may block its thread while another process writes. Raises `StorageError` for a
    damaged file, for one of a newer foretool or of another program, and for missing permissions.
    """
    if is_address(path):
        return SqlStore(_postgres().open(str(path), busy_ms))
    return SqlStore(SqliteDatabase.open(path, busy_ms))


def open_serving_store(path: Path | str, *, busy_ms: int = 250) -> Store:
    """Open the store at `path` for a proxy. Never raises: a proxy serves without its store until it can be used.

    While `Store.trouble` says why it cannot be used, every method raises a temporary `StorageError`; `Store.reopen`
    tries again.
    """
    if is_address(path):
        return SqlStore(_postgres().open_to_serve(str(path), busy_ms))
    return SqlStore(SqliteDatabase.open_to_serve(path, busy_ms))


def is_address(path: Path | str) -> bool:
    """Tell whether a storage setting is the address of a server, not a file."""
    return str(path).startswith(("postgresql://", "postgres://"))


def _postgres() -> type[PostgresDatabase]:
    try:
        from foretool.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        raise StorageError(
            f"storage: psycopg is not installed ({error}); run: pip install 'foretool[postgres]'"
        ) from error
    return PostgresDatabase


def open_existing_store(path: Path) -> Store:
    """Open the store at `path` for reading; if there is none yet, open an empty one in memory instead."""
    return open_store(path if path.exists() else ":memory:")


def examine_store(path: Path, patience_s: float) -> Health:
    """Check a store without changing it, for at most `patience_s`; raises `StorageError` if it cannot be read."""
    return examine(path, patience_s)


def open_files(path: Path) -> tuple[tuple[Path, int], ...]:
    """Return the files of a store that others may reach and its user can close, with the right permissions of each."""
    return find_open_files(path)


def exposure(path: Path) -> tuple[str, ...]:
    """Return one line for each way in which another user of the machine could read or change a store."""
    return find_exposure(path)


def copy_store(path: Path, target: Path) -> None:
    """Write a copy of the store as it is now into a new file that only its owner can read. Raises `StorageError`."""
    copy_file(path, target)
