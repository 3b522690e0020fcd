"""Tables are made, and later steps run in order, once, completely or not at all, and in one of several processes."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from docs.sqlite_schema import make_tables, write_schema
from foretool.storage.sql.costs import CostSum
from foretool.storage.sqlite.migrations import (
    MIGRATIONS,
    NEWEST,
    SCHEMA,
    is_foreign,
    migrate,
    schema_version,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


def applied(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()


def m001_more(db: Database) -> None:
    db.table("more").create({"id": int})


def m002_fails(db: Database) -> None:
    db.table("half").create({"id": int})
    raise sqlite3.OperationalError("no room")


def test_a_new_file_has_the_newest_tables(connection: sqlite3.Connection) -> None:
    assert schema_version(connection) == 0
    migrate(connection)
    assert schema_version(connection) == NEWEST
    assert applied(connection) == [(NEWEST, "schema.sql")]
    assert not is_foreign(connection)


def test_a_file_of_a_released_version_gets_the_later_steps_in_order_and_once(connection: sqlite3.Connection) -> None:
    migrate(connection)
    migrate(connection, [*MIGRATIONS, m001_more])
    assert applied(connection) == [(NEWEST, "schema.sql"), (NEWEST + 1, "m001_more")]
    before = schema(connection)
    assert "more" in dict(before)
    migrate(connection, [*MIGRATIONS, m001_more])
    assert (schema_version(connection), schema(connection)) == (NEWEST + 1, before)


def test_a_step_that_fails_leaves_the_file_as_it_was(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = schema(connection)
    with pytest.raises(sqlite3.OperationalError, match="no room"):
        migrate(connection, [*MIGRATIONS, m001_more, m002_fails])
    assert (schema_version(connection), schema(connection), connection.in_transaction) == (NEWEST, before, False)


def test_a_file_of_another_program_is_recognised(connection: sqlite3.Connection) -> None:
    assert not is_foreign(connection)
    connection.execute("CREATE TABLE theirs (id)")
    assert is_foreign(connection)
    connection.execute("PRAGMA user_version = 2")
    assert is_foreign(connection)


@pytest.mark.slow
def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from foretool.storage.opening import open_store\n"
        "import sqlite_utils; print('ready', flush=True); sys.stdin.readline()\n"
        "open_store(pathlib.Path(sys.argv[1])).close()"
    )
    path = tmp_path / "foretool.db"
    command = [sys.executable, "-c", code, str(path)]
    openers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        opener.communicate()
    assert [opener.returncode for opener in openers] == [0, 0, 0, 0]
    with sqlite3.connect(path) as connection:
        assert applied(connection) == [(NEWEST, "schema.sql")]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_what_was_priced_by_quarters_of_an_hour_keeps_its_price(connection: sqlite3.Connection) -> None:
    database = Database(connection)
    for step in (make_tables, *MIGRATIONS[:5]):
        step(database)
    connection.execute("INSERT INTO catalog_sizes VALUES (10, 500, 400), (11, 400, 300)")
    names = ", ".join(name for name in CostSum.__struct_fields__ if "full" not in name and "priced" not in name)
    for period in (9, 10, 12):
        row = CostSum(period, "c", calls=3, refused=1, rated_calls=2)
        values = [getattr(row, name) for name in names.split(", ")]
        connection.execute(f"INSERT INTO costs ({names}) VALUES ({', '.join('?' * len(values))})", values)
    MIGRATIONS[5](database)
    found = connection.execute("SELECT period, full_tokens, rated_full_tokens, priced FROM costs").fetchall()
    assert found == [(9, 1000, 1000, 2), (10, 1000, 1000, 2), (12, 600, 600, 2)]
    sizes = connection.execute("SELECT at, tokens FROM catalog_tokens ORDER BY at").fetchall()
    assert sizes == [(9000.0, 500), (9900.0, 400), (10800.0, 300)]


def test_a_step_leaves_nothing_heavy_in_memory_and_hides_no_module_afterwards() -> None:
    code = (
        "import sys\n"
        "from docs.sqlite_schema import write_schema\n"
        "write_schema()\n"
        "assert not {'numpy', 'pandas'} & sys.modules.keys()\n"
        "import numpy\n"
        "write_schema()\n"
        "assert sys.modules['numpy'] is numpy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_statements_of_a_new_file_are_made_from_the_columns() -> None:
    assert SCHEMA.read_text("utf-8") == write_schema(), "run `make format`"


def test_a_new_file_that_cannot_be_finished_stays_empty(connection: sqlite3.Connection) -> None:
    def refuse(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_CREATE_TRIGGER else sqlite3.SQLITE_OK

    connection.set_authorizer(refuse)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        migrate(connection)
    connection.set_authorizer(None)
    assert (schema_version(connection), schema(connection), connection.in_transaction) == (0, [], False)


def test_a_new_file_needs_no_import_of_sqlite_utils() -> None:
    code = (
        "import sys\n"
        "from foretool.storage.opening import open_store\n"
        "open_store(':memory:').close()\n"
        "assert 'sqlite_utils' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
