"""A copy holds what was committed, also while a proxy writes, and belongs to its owner alone."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

from stored_records import CALL

from foretool.storage.opening import open_store
from foretool.storage.sqlite.copying import copy_file


def test_a_copy_has_what_is_still_in_the_log(path: Path, tmp_path: Path) -> None:
    with open_store(path) as store:
        store.calls.record([CALL])
        copy_file(path, tmp_path / "copy")
        store.calls.record([CALL])
    assert sqlite3.connect(tmp_path / "copy").execute("SELECT count(*) FROM calls").fetchall() == [(1,)]
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy"]
