"""Opens and examines a store; the only place that knows which database engine is below."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretool.storage.engine import StorageError
from foretool.storage.places import MEMORY, ServerAddress, StorePlace, is_address, read_place
from foretool.storage.sqlite import connecting
from foretool.storage.sqlite.connecting import examine
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.sqlite.files import find_exposure, find_open_files
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.storage.records import Health
    from foretool.storage.sql.database import Database

_INSTALL = "pip install 'foretool[postgres]'"


def open_store(place: StorePlace | str, *, busy_ms: int = 250) -> Store:
    """Open the store at `place`. Create it if it is missing (directory 0700, file 0600), and migrate an older one.

    `place` is a file, ":memory:", or the address of a PostgreSQL database: `postgresql://user:password@host/database`.
    A file of ours that other users may read is closed to them.

    `busy_ms` is how long a later write may block its thread while another process writes. Raises `StorageError` for a
    damaged file, for one of a newer foretool or of another program, and for missing permissions.
    """
    place = _read(place)
    if not isinstance(place, ServerAddress):
        return Store(SqliteDatabase.open(place, busy_ms))
    return Store(_server_engine(place).open(place, busy_ms))


def open_past_database() -> Database:
    """Open an empty database in memory, in which a replay rebuilds what a store held at an earlier time."""
    return SqliteDatabase.open(MEMORY, 0)


def open_serving_store(place: StorePlace | str, *, busy_ms: int = 250) -> Store:
    """Open the store at `place` for a proxy. It serves without its store until it can be used.

    While `Store.trouble` says why it cannot be used, every method raises a temporary `StorageError`; `Store.reopen`
    tries again. Raises `StorageError` only if the driver of a database is not installed.
    """
    place = _read(place)
    if not isinstance(place, ServerAddress):
        return Store(SqliteDatabase.open_to_serve(place, busy_ms))
    return Store(_server_engine(place).open_to_serve(place, busy_ms))


def open_readable_store(place: StorePlace | str, *, busy_ms: int = 250) -> Store:
    """Do what `open_store` does, and open a file that cannot be written, as on a full disk, for reading: `Store.notice`
    says why then. Raises `StorageError`."""
    try:
        return open_store(place, busy_ms=busy_ms)
    except StorageError as error:
        found = SqliteDatabase.open_unwritable(place, str(error)) if isinstance(place, Path) else None
        if found is None:
            raise
        return Store(found)


def open_existing_store(place: StorePlace) -> Store:
    """Open the store at `place` for reading; if there is none yet, open an empty one in memory instead. Raises
    `StorageError`, also where there is none and no proxy can create it."""
    if not isinstance(place, ServerAddress):
        require_place(place)
        return open_readable_store(place if place.exists() else MEMORY)
    database = _server_engine(place).open(place, 250, creates=False)
    return open_store(MEMORY) if database is None else Store(database)


def require_place(place: Path) -> None:
    """Raise `StorageError` if there is no file of a store at this place and none can be created."""
    if not place.exists():
        connecting.require_place(place)


def store_exists(place: StorePlace) -> bool:
    """Return whether there is a store. Raises `StorageError` for a server that cannot be reached."""
    if not isinstance(place, ServerAddress):
        return place.exists()
    return bool(_server_health(place).has_tables(place, 10))


def _read(place: StorePlace | str) -> StorePlace | str:
    return read_place(place) if isinstance(place, str) and is_address(place) else place


def _server_engine(place: ServerAddress) -> Any:
    """Return the engine for a database server. It is in a pack, which is imported only here. Raises `StorageError`
    where its driver is not installed."""
    _need_driver(place)
    return import_module("foretool.fleet.postgres.database").PostgresDatabase


def _server_health(place: ServerAddress) -> Any:
    """As `_server_engine`: what tells how a database server is."""
    _need_driver(place)
    return import_module("foretool.fleet.postgres.health")


def _need_driver(place: ServerAddress) -> None:
    """Raise `StorageError` where psycopg, or the pack that uses it, is not installed."""
    try:
        import_module("foretool.fleet")
    except ImportError:
        problem = "this installation lacks the part foretool.fleet; install foretool again"
        raise StorageError(f"{place}: {problem}") from None
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StorageError(f"{place}: psycopg is not installed ({error}); run: {_INSTALL}") from error


def examine_store(place: StorePlace, patience_s: float) -> Health:
    """Check a store without changing it, for at most `patience_s`; raises `StorageError` if it cannot be read."""
    if not isinstance(place, ServerAddress):
        return examine(place, patience_s)
    found: Health = _server_health(place).examine(place, patience_s)
    return found


def open_files(path: Path) -> tuple[tuple[Path, int], ...]:
    """Return the files of a store that others may reach and its user can close, with the right permissions of each."""
    return find_open_files(path)


def exposure(place: StorePlace) -> tuple[str, ...]:
    """Return one line for each way in which another user of the machine could read or change a store's file."""
    return () if isinstance(place, ServerAddress) else find_exposure(place)


def find_change_mark(place: StorePlace) -> object:
    """Return a value that is another one after each write to a database on a server; None for a file, whose
    modification time serves for that."""
    if not isinstance(place, ServerAddress):
        return None
    try:
        return _server_health(place).find_change_mark(place)
    except StorageError as error:
        return str(error)
