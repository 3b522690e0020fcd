"""Errors of SQLite say what was found, whether waiting helps, and what to do."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretool.storage.sqlite import errors
from foretool.storage.sqlite.errors import explain_error


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


def test_an_input_output_error_on_a_full_disk_says_that_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = error(sqlite3.SQLITE_IOERR, "disk I/O error")
    assert "disk I/O error; nothing was written, try again" in str(explain_error(failed, tmp_path / "s.sqlite3", 250))
    monkeypatch.setattr(errors, "disk_usage", lambda folder: SimpleNamespace(free=0))
    found = explain_error(failed, tmp_path / "s.sqlite3", 250)
    assert str(found) == f"{tmp_path / 's.sqlite3'}: disk full; nothing was written, free some space"
    assert found.temporary
