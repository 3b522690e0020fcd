"""Who else could change or read a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foretool.server.config.files import find_other_writers, is_readable_by_others, is_users_word


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    path = folder / "mcp.json"
    path.write_text("{}")
    path.chmod(0o600)
    return path


def test_a_file_of_ours_in_a_folder_of_ours_has_no_other_writer(file: Path) -> None:
    assert find_other_writers(file) == ""
    assert find_other_writers(file.with_name("not-there")) == ""


def test_a_file_that_every_user_may_write_has(file: Path) -> None:
    file.chmod(0o602)
    assert find_other_writers(file) == f"every user of this machine may write {file}"


def test_a_folder_above_it_that_every_user_may_write_counts_unless_it_is_sticky(file: Path) -> None:
    file.parent.chmod(0o777)
    assert find_other_writers(file) == f"every user of this machine may write {file.parent}"
    file.parent.chmod(0o1777)
    assert find_other_writers(file) == ""


def test_the_file_behind_a_link_counts(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert find_other_writers(link) == ""
    file.parent.chmod(0o777)
    assert find_other_writers(link) == f"every user of this machine may write {file.parent}"


def test_a_file_of_another_user_has(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = file.stat().st_uid
    if owner == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert "belongs to the user" in find_other_writers(file)


def test_a_mode_that_lets_others_read(file: Path) -> None:
    assert not is_readable_by_others(file)
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        assert is_readable_by_others(file)
    assert not is_readable_by_others(file.with_name("not-there"))


def test_a_file_is_the_users_word_unless_others_or_a_repository_may_have_written_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_users_word(file)
    file.chmod(0o602)
    assert not is_users_word(file)
    file.chmod(0o600)
    (file.parents[1] / ".git").mkdir()
    assert not is_users_word(file)
    link = file.parents[1] / "link.json"
    link.symlink_to(file)
    assert not is_users_word(link)
    monkeypatch.setenv("HOME", str(file.parents[1]))  # a repository of the home folder is the user's own
    assert is_users_word(file)
