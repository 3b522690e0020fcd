"""A storage file is examined without being changed."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretool.storage.opening import open_store
from foretool.storage.records import Health
from foretool.storage.sqlite.health import examine
from foretool.storage.sqlite.migrations import MIGRATIONS
from foretool.storage.stores import StorageError


def create_store(path: Path) -> Path:
    open_store(path).close()
    return path


def test_a_good_file_has_no_problems(tmp_path: Path) -> None:
    path = create_store(tmp_path / "a b?.sqlite3")
    assert examine(path, 5.0) == Health(len(MIGRATIONS), len(MIGRATIONS), False, True, (), True)


def test_an_old_file_is_not_migrated(tmp_path: Path) -> None:
    path = create_store(tmp_path / "old.sqlite3")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    assert [examine(path, 5.0).version, examine(path, 5.0).version] == [1, 1]


def test_examining_tells_that_another_program_made_the_file(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (id)")
    database.close()
    assert examine(path, 5.0).is_foreign


def test_damage_is_reported(tmp_path: Path) -> None:
    path = create_store(tmp_path / "bad.sqlite3")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 4] = b"\xff" * 4096
    path.write_bytes(data)
    assert examine(path, 5.0).problems


def test_a_check_that_takes_too_long_ends_incomplete(tmp_path: Path) -> None:
    path = create_store(tmp_path / "large.sqlite3")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE filler (a)")
        database.executemany("INSERT INTO filler VALUES (?)", ((number,) for number in range(20_000)))
    database.close()
    health = examine(path, 0.0)
    assert (health.is_complete, health.problems) == (False, ())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"this is no database, " * 100, "not a readable SQLite file .*: move it away to start with an empty one"),
        (None, "unable to open database file; check that this user may read and write the file and its directory"),
    ],
)
def test_the_error_for_an_unreadable_file_says_what_to_do(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite3"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=said):
        examine(path, 5.0)


def test_on_a_full_disk_nobody_is_told_to_move_the_file_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(database: sqlite3.Connection) -> int:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    path = create_store(tmp_path / "foretool.sqlite3")
    monkeypatch.setattr("foretool.storage.sqlite.health.schema_version", fail)
    with pytest.raises(StorageError, match="cannot be read"):
        examine(path, 5.0)
    monkeypatch.setattr("foretool.storage.sqlite.errors.disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(StorageError, match="disk full; nothing was written, free some space"):
        examine(path, 5.0)
