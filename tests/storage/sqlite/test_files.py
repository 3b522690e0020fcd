"""The files of the store belong to their user alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from requirements import requirement

from foretool.storage.engine import StorageError
from foretool.storage.opening import examine_store, exposure, open_store
from foretool.storage.sqlite.files import create_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@requirement("trust:data:private-files")
def test_existing_files_and_our_own_folder_are_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "foretool" / "store.sqlite3"
    open_store(path).close()
    log = path.with_name("store.sqlite3-wal")
    log.touch()
    for each, loose in ((path, 0o666), (log, 0o644), (path.parent, 0o755)):
        each.chmod(loose)
    assert len(exposure(path)) == 3
    with open_store(path):
        assert [mode(each) for each in (path, log, path.parent)] == [0o600, 0o600, 0o700]
    assert exposure(path) == ()


def test_the_folder_of_somebodys_project_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    open_store(tmp_path / "store.sqlite3").close()
    assert mode(tmp_path) == 0o755
    assert exposure(tmp_path / "store.sqlite3") == ()


@requirement("trust:data:private-files")
def test_a_folder_that_others_may_write_is_reported_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    open_store(tmp_path / "store.sqlite3").close()
    (line,) = exposure(tmp_path / "store.sqlite3")
    assert line.startswith(f"{tmp_path}: other users may replace the storage file")
    assert f"chmod go-w {tmp_path}" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_or_a_link_of_another_user_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    open_store(path).close()
    os.chown(path, 12345, -1)
    assert "belongs to another user (id 12345)" in exposure(path)[0]
    os.chown(path, 0, -1)
    link = tmp_path / "link.sqlite3"
    link.symlink_to(path)
    assert exposure(link) == ()
    os.chown(link, 12345, -1, follow_symlinks=False)
    assert "a link that another user made" in exposure(link)[0]


def test_a_link_in_place_of_the_log_changes_nothing_where_it_leads(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    open_store(path).close()
    mine = tmp_path / "mine.txt"
    mine.write_text("public")
    mine.chmod(0o644)
    path.with_name("store.sqlite3-shm").symlink_to(mine)
    create_private(path)
    assert mode(mine) == 0o644


def test_a_pipe_in_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    os.mkfifo(path)
    for use in (open_store, lambda each: examine_store(each, 1.0)):
        with pytest.raises(StorageError, match="not a regular file"):
            use(path)
