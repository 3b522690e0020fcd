"""What is wrong with a database, found without changing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import SKIPPED, new_database, new_schema

from foretool.storage.engine import StorageError
from foretool.storage.opening import examine_store, find_change_mark, open_existing_store, open_store, store_exists
from foretool.storage.places import ServerAddress

psycopg = pytest.importorskip("psycopg")

pytestmark = pytest.mark.slow


def place(written: str | None) -> ServerAddress:
    return ServerAddress(written or pytest.skip(SKIPPED), Path("/nowhere"))


def test_an_empty_schema_is_well_and_stays_empty() -> None:
    found = place(new_schema())
    health = examine_store(found, 5.0)
    assert (health.version, health.problems, health.is_writable, health.is_foreign) == (0, (), True, False)
    assert health.engine.startswith("PostgreSQL ")
    assert not store_exists(found)
    with open_existing_store(found) as store:
        assert store.path == ":memory:"
    assert not store_exists(found)
    open_store(found).close()
    assert store_exists(found)
    with open_existing_store(found) as store:
        assert store.path == found


def test_tables_of_another_program_are_left_alone() -> None:
    found = place(new_schema())
    with psycopg.connect(found.written, autocommit=True) as connection:
        connection.execute("CREATE TABLE sessions (id int)")
    assert examine_store(found, 5.0).is_foreign
    with pytest.raises(StorageError, match="of another program"):
        open_store(found)


def test_without_a_schema_of_its_own_a_database_gets_ours() -> None:
    found = place(new_database("ours"))
    assert "schema foretool" in examine_store(found, 5.0).engine
    with open_store(found) as store:
        ((schema,),) = store.calls._database.rows("SELECT current_schema()")  # type: ignore[attr-defined]
        assert schema == "foretool"
    with psycopg.connect(found.written) as connection:
        assert connection.execute("SELECT count(*) FROM foretool.calls").fetchone() == (0,)


def test_another_encoding_and_missing_rights_are_told_with_the_way_out() -> None:
    latin = place(new_database("latin", "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    assert "ENCODING 'UTF8'" in examine_store(latin, 5.0).problems[0]
    own = place(new_database("guarded"))
    with psycopg.connect(own.written, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    guest = ServerAddress(own.written.replace("postgres:@", "guest:@"))
    assert "GRANT CREATE ON DATABASE" in examine_store(guest, 5.0).problems[0]
    with pytest.raises(StorageError, match="permission denied"):
        open_store(guest)
    open_store(own).close()
    with psycopg.connect(own.written, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA foretool TO guest")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA foretool TO guest")
    assert "may not read and write the table" in examine_store(guest, 5.0).problems[0]


def test_a_database_that_may_only_be_read_is_told() -> None:
    own = place(new_database("still"))
    with psycopg.connect(own.written, autocommit=True) as connection:
        connection.execute("ALTER DATABASE still SET default_transaction_read_only = on")
    assert not examine_store(own, 5.0).is_writable


def test_the_mark_changes_when_something_was_written_and_a_server_that_is_away_is_told() -> None:
    found = place(new_schema())
    with open_store(found) as store:
        before = find_change_mark(found)
        assert find_change_mark(found) == before
        store.artifacts.bump_version()
        assert find_change_mark(found) != before
    assert find_change_mark(Path("/a/file")) is None
    away = ServerAddress("postgresql://me:hunter2@127.0.0.1:1/none")
    assert "check that the server runs" in str(find_change_mark(away))
    with pytest.raises(StorageError, match="check that the server runs"):
        examine_store(away, 1.0)
    with pytest.raises(StorageError, match="check that the server runs"):
        store_exists(away)
