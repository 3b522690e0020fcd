"""Migrations run in order, once, completely or not at all, and in one of several processes."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from foretool.storage.sqlite import migrations
from foretool.storage.sqlite.migrations import MIGRATIONS, is_foreign, migrate, schema_version


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


def applied(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()


def test_a_new_file_gets_every_step_in_order(connection: sqlite3.Connection) -> None:
    assert schema_version(connection) == 0
    migrate(connection)
    assert schema_version(connection) == len(MIGRATIONS)
    assert applied(connection) == [(number, step.__name__) for number, step in enumerate(MIGRATIONS, 1)]
    assert not is_foreign(connection)


def test_migrating_twice_changes_nothing(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = schema(connection)
    migrate(connection)
    assert schema(connection) == before


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_a_file_of_any_earlier_version_ends_like_a_new_one(connection: sqlite3.Connection, version: int) -> None:
    new = sqlite3.connect(":memory:", isolation_level=None)
    migrate(new)
    migrate(connection, MIGRATIONS[:version])
    assert schema_version(connection) == version
    migrate(connection)
    assert (schema(connection), applied(connection)) == (schema(new), applied(new))
    new.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(connection: sqlite3.Connection) -> None:
    def m004_fails(db: Database) -> None:
        db.table("half").create({"id": int})
        raise sqlite3.OperationalError("no room")

    migrate(connection, MIGRATIONS[:2])
    before = schema(connection)
    with pytest.raises(sqlite3.OperationalError, match="no room"):
        migrate(connection, [*MIGRATIONS, m004_fails])
    assert (schema_version(connection), schema(connection), connection.in_transaction) == (2, before, False)


def test_a_step_with_a_wrong_number_is_refused() -> None:
    def m999_early(db: Database) -> None: ...

    count = len(MIGRATIONS)
    with pytest.raises(AssertionError, match=f"m999_early is step {count + 1}"):
        migrations.migration(m999_early)
    del MIGRATIONS[count:]


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
        assert [number for number, _ in applied(connection)] == list(range(1, len(MIGRATIONS) + 1))
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_creating_a_file_leaves_nothing_heavy_in_memory_and_hides_no_module_afterwards() -> None:
    code = (
        "import sqlite3, sys\n"
        "from foretool.storage.sqlite.migrations import migrate\n"
        "migrate(sqlite3.connect(':memory:', isolation_level=None))\n"
        "assert not {'numpy', 'pandas'} & sys.modules.keys()\n"
        "import numpy\n"
        "migrate(sqlite3.connect(':memory:', isolation_level=None))\n"
        "assert sys.modules['numpy'] is numpy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def contents(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, but for the times of the steps."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: connection.execute(f"SELECT {'number, name' if name == 'migrations' else '*'} FROM {name}").fetchall()
        for name in names
    }


def test_a_new_file_is_made_of_statements_that_make_what_all_steps_make(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert migrations.SCHEMA.read_text("utf-8") == migrations.write_schema(), "run `make format`"
    stepped = sqlite3.connect(":memory:", isolation_level=None)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_read_schema", lambda steps: [])
        migrate(stepped)
        patch.undo()
        patch.setattr(migrations, "_apply", None)  # no step runs for a new file
        migrate(connection)
    assert schema(connection) == schema(stepped)
    assert contents(connection) == contents(stepped)
    assert schema_version(connection) == schema_version(stepped) == len(MIGRATIONS)
    stepped.close()


def test_a_new_file_takes_the_steps_while_the_statements_are_those_of_other_steps(
    connection: sqlite3.Connection,
) -> None:
    def m001_alone(db: Database) -> None:
        db.table("migrations").create({"number": int, "name": str, "applied_at": float}, pk="number")

    migrate(connection, [m001_alone])
    assert applied(connection) == [(1, "m001_alone")]


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
