"""A connection to a new file gives room back and overwrites what is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.storage.sqlite.connecting import connect, connect_existing
from foretool.storage.stores import StorageError


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
