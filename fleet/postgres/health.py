"""Examines a database on a server without changing it."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from foretool.fleet.postgres import schema
from foretool.fleet.postgres.connecting import OWN_SCHEMA, connect, explain_error
from foretool.storage.places import ServerAddress
from foretool.storage.records import Health

_OLDEST: Final = 130_000
"""The oldest server that is tested, as PostgreSQL numbers its versions."""
_LOOK: Final = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
    current_setting('server_encoding'), current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery(),
    coalesce(current_schema(), ''), current_user,
    has_database_privilege(current_database(), 'CREATE'),
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
"""
_RIGHTS: Final = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
    AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND (relname = 'audit' OR (has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))))
    ORDER BY relname LIMIT 1
"""

_CHANGES: Final = """
SELECT pg_sequence_last_value(pg_get_serial_sequence('calls', 'id')::regclass), (SELECT max(id) FROM misses),
    pg_sequence_last_value(pg_get_serial_sequence('discoveries', 'id')::regclass),
    pg_sequence_last_value(pg_get_serial_sequence('exposures', 'id')::regclass), (SELECT max(id) FROM artifacts),
    (SELECT sum(value) FROM counters), (SELECT max(since) FROM upstream_states)
"""


def examine(address: ServerAddress, patience_s: float) -> Health:
    """Check a database; raises `StorageError` if it cannot be read at all."""
    connection = connect(address, 1000, max(int(patience_s), 1), patience_s)
    try:
        return _examine(connection)
    except (psycopg.Error, OSError) as error:
        raise explain_error(error, address, is_closed=connection.closed) from error
    finally:
        connection.close()


def has_tables(address: ServerAddress, patience_s: int) -> bool:
    """Return whether foretool has made its tables. Raises `StorageError`."""
    connection = connect(address, 1000, patience_s)
    try:
        return schema.version(psycopg.Cursor(connection).execute) > 0
    except (psycopg.Error, OSError) as error:
        raise explain_error(error, address, is_closed=connection.closed) from error
    finally:
        connection.close()


def find_change_mark(address: ServerAddress) -> tuple[Any, ...]:
    """Return a value that differs after each write to the database. Raises `StorageError`."""
    connection = connect(address, 1000, 5, 5.0)
    try:
        return tuple(psycopg.Cursor(connection).execute(_CHANGES).fetchall()[0])
    except (psycopg.Error, OSError) as error:
        raise explain_error(error, address, is_closed=connection.closed) from error
    finally:
        connection.close()


def _examine(connection: psycopg.Connection[Any]) -> Health:
    run = psycopg.Cursor(connection).execute
    named, number, encoding, is_read_only, schema_name, user, may_create, may_make_tables = run(_LOOK).fetchall()[0]
    version = schema.version(run)
    problems = []
    if number < _OLDEST:
        problems.append(f"PostgreSQL {named} is too old; foretool needs {_OLDEST // 10_000} or newer")
    if encoding != "UTF8":
        problems.append(
            f"its encoding is {encoding}; create it again: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
    if not version and not (may_make_tables if schema_name else may_create):
        what = f"tables in the schema {schema_name}" if schema_name else f"the schema {OWN_SCHEMA}"
        on = f"SCHEMA {schema_name}" if schema_name else "DATABASE ..."
        problems.append(f"{user} may not create {what}; run as its owner: GRANT CREATE ON {on} TO {user}")
    if version and (closed := run(_RIGHTS).fetchone()) is not None:
        problems.append(f"{user} may not read and write the table {closed[0]}; make {user} the owner of the tables")
    ((tables,),) = run(schema.COUNT_TABLES, (OWN_SCHEMA,)).fetchall()
    return Health(
        version=version,
        oldest=schema.BASE,
        newest=schema.NEWEST,
        is_foreign=not version and tables > 0,
        is_writable=not is_read_only,
        problems=tuple(problems),
        is_complete=True,
        engine=f"PostgreSQL {named}, schema {schema_name or OWN_SCHEMA}",
    )
