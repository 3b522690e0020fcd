"""Errors of SQLite say what was found, whether waiting helps, and what to do."""

import sqlite3
from pathlib import Path

import pytest

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
