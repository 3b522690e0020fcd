"""A connection to a new file gives room back and overwrites what is deleted."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.records import Health
from foretool.storage.sqlite import connecting
from foretool.storage.sqlite.connecting import connect, connect_existing, examine, explain_error
from foretool.storage.sqlite.migrations import BASE, NEWEST


def test_a_new_file_is_private_gives_room_back_and_overwrites_what_is_deleted(path: Path) -> None:
    connection = connect(path, 250, 1.0)
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("auto_vacuum", "secure_delete")]
    connection.close()
    assert found == [2, 1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_gone_is_not_created_by_the_upkeep(path: Path) -> None:
    path.parent.mkdir()
    with pytest.raises(Exception, match="unable to open"):
        connect_existing(path)
    assert not path.exists()


def test_a_connection_that_is_to_write_fails_where_it_cannot(path: Path) -> None:
    holder = connect(path, 250, 1.0)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        connect(path, 0, 0.0, writes=True)
    holder.close()


def error(code: int, text: str = "boom") -> sqlite3.Error:
    found = sqlite3.OperationalError(text)
    found.sqlite_errorcode = code
    return found


@pytest.mark.parametrize(
    ("code", "text", "temporary", "lost"),
    [
        (sqlite3.SQLITE_BUSY, "", True, False),
        (sqlite3.SQLITE_FULL, "", True, False),
        (sqlite3.SQLITE_IOERR, "", True, False),
        (sqlite3.SQLITE_CORRUPT, "", False, True),
        (sqlite3.SQLITE_NOTADB, "", False, True),
        (sqlite3.SQLITE_READONLY, "", False, True),
        (sqlite3.SQLITE_CANTOPEN, "", False, True),
        (sqlite3.SQLITE_ERROR, "table calls has no column named handle", False, True),
        (sqlite3.SQLITE_ERROR, "no such table: calls", False, True),
        (sqlite3.SQLITE_ERROR, "near SELEC: syntax error", False, False),
        (sqlite3.SQLITE_CONSTRAINT, "", False, False),
    ],
)
def test_an_error_says_whether_waiting_helps(code: int, text: str, temporary: bool, lost: bool) -> None:
    found = explain_error(error(code, text), Path("s.sqlite3"), 250)
    assert (found.temporary, found.lost) == (temporary, lost)
    assert str(found).startswith("s.sqlite3: ")


@pytest.mark.parametrize("code", [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM])
def test_a_read_only_file_system_is_named_as_such(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = error(code, "attempt to write a readonly database")
    assert "check that this user may read and write" in str(explain_error(failed, tmp_path / "s.sqlite3", 250))
    monkeypatch.setattr(connecting.os, "statvfs", lambda folder: SimpleNamespace(f_flag=os.ST_RDONLY))
    said = str(explain_error(failed, tmp_path / "s.sqlite3", 250))
    assert 'its file system is read-only; set "storage" to a place that can be written' in said


def test_an_input_output_error_on_a_full_disk_says_that_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = error(sqlite3.SQLITE_IOERR, "disk I/O error")
    assert "disk I/O error; nothing was written, try again" in str(explain_error(failed, tmp_path / "s.sqlite3", 250))
    monkeypatch.setattr(connecting, "disk_usage", lambda folder: SimpleNamespace(free=0, total=1 << 30))
    found = explain_error(failed, tmp_path / "s.sqlite3", 250)
    assert str(found) == f"{tmp_path / 's.sqlite3'}: disk full; nothing was written, free some space"
    assert found.temporary


def create_store(path: Path) -> Path:
    open_store(path).close()
    return path


def test_a_good_file_has_no_problems(tmp_path: Path) -> None:
    path = create_store(tmp_path / "a b?.sqlite3")
    assert examine(path, 5.0) == Health(NEWEST, BASE, NEWEST, False, True, (), True)


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
    monkeypatch.setattr("foretool.storage.sqlite.connecting.schema_version", fail)
    with pytest.raises(StorageError, match="cannot be read"):
        examine(path, 5.0)
    monkeypatch.setattr(
        "foretool.storage.sqlite.connecting.disk_usage", lambda folder: SimpleNamespace(free=0, total=1 << 30)
    )
    with pytest.raises(StorageError, match="disk full; nothing was written, free some space"):
        examine(path, 5.0)
