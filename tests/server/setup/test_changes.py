"""Every change of a file can be undone, byte for byte, and half a change never stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from foretool.server.setup import changes
from foretool.server.setup.changes import ChangeError, FileChange, undo, write_changes
from foretool.server.system.interrupts import Interrupted


def test_what_was_there_comes_back(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "deep" / "new.json"
    old.write_bytes(b"\xef\xbb\xbf{ }\r\n")
    old.chmod(0o640)
    backups = tmp_path / "backups"
    kept = write_changes([FileChange(old, old.read_bytes(), b"{1}", ""), FileChange(new, None, b"{2}", "")], backups)
    assert (old.read_bytes(), new.read_bytes()) == (b"{1}", b"{2}")
    assert (old.stat().st_mode & 0o777, new.stat().st_mode & 0o777) == (0o640, 0o600)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert all(each.stat().st_mode & 0o077 == 0 for each in kept.iterdir())
    undone = undo(backups)
    assert (undone.restored, undone.problems) == ([old, new], [])
    assert old.read_bytes() == b"\xef\xbb\xbf{ }\r\n" and not new.exists() and old.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ChangeError, match="nothing to undo"):
        undo(backups)


def test_a_file_that_changed_before_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"other")
    with pytest.raises(ChangeError, match="has changed in the meantime"):
        write_changes([FileChange(path, b"old", b"new", "")], tmp_path / "backups")
    assert path.read_bytes() == b"other"


def test_if_one_cannot_be_written_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"old")
    two.write_bytes(b"old")
    write = changes._write

    def fails(path: Path, data: bytes, mode: int) -> None:
        if path == two:
            raise PermissionError(13, "Permission denied", str(path))
        write(path, data, mode)

    monkeypatch.setattr(changes, "_write", fails)
    with pytest.raises(ChangeError, match=r"two: cannot be written \(Permission denied\); nothing was changed"):
        write_changes([FileChange(path, b"old", b"new", "") for path in (one, two)], tmp_path / "backups")
    assert (one.read_bytes(), two.read_bytes()) == (b"old", b"old")
    # A client's file that a tool keeps read-only stopped init for all clients, without a way on.
    given = [FileChange(path, b"old", b"new", "") for path in (one, two)]
    with pytest.raises(
        ChangeError, match=r"nothing was changed; to go on without it, name .*: foretool init --client NAME"
    ):
        write_changes(given, tmp_path / "own" / "backups", what="init")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_changes([FileChange(link, b"old", b"new", "")], tmp_path / "backups")
    assert link.is_symlink() and real.read_bytes() == b"new"


def test_nothing_is_written_through_a_file_that_somebody_put_there(tmp_path: Path) -> None:
    path, victim = tmp_path / "a", tmp_path / "victim"
    path.write_bytes(b"old")
    victim.write_bytes(b"keep")
    (tmp_path / f".a.foretool-{os.getpid()}").symlink_to(victim)
    with pytest.raises(ChangeError):
        write_changes([FileChange(path, b"old", b"new", "")], tmp_path / "backups")
    assert victim.read_bytes() == b"keep"


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        ("a\nB\nc\nd\ne\n", "a\nb\nc\nd\n", "a\nB\nc\nd\n"),
        ("new\na\nb\nc\nd\ne\n", "a\nb\nd\ne\n", "new\na\nb\nd\ne\n"),
        ("a\nX\nc\nd\ne\n", "a\nY\nc\nd\ne\n", None),
        ("a\nX\nc\nd\ne\n", "a\nb\nY\nd\ne\n", None),
        ("a\nb\nc\nd\ne\n", "", ""),
        ("a\nnew\nb\nc\nd\ne\n", "a\nY\nZ\nd\ne\n", "a\nnew\nY\nZ\nd\ne\n"),
        ("a\nb\nnew\nc\nd\ne\n", "a\nY\nc\nd\ne\n", "a\nY\nnew\nc\nd\ne\n"),
        ("a\nb\nX\nc\nd\ne\n", "a\nb\nW\nc\nd\ne\n", "a\nb\nX\nW\nc\nd\ne\n"),
    ],
)
def test_lines_that_two_texts_changed_are_put_together(one: str, other: str, merged: str | None) -> None:
    assert changes.merge_texts("a\nb\nc\nd\ne\n", one, other) == merged


def test_where_the_copies_cannot_be_written_undo_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, backups = tmp_path / "a", tmp_path / "backups"
    path.write_bytes(b"old")
    kept = write_changes([FileChange(path, b"old", b"new", "")], backups)
    write = changes._write

    def fails(path: Path, data: bytes, mode: int) -> None:
        if path.parent == kept:
            raise OSError(30, "Read-only file system", str(path))
        write(path, data, mode)

    monkeypatch.setattr(changes, "_write", fails)
    with pytest.raises(ChangeError, match=r"changes.json: cannot be written \(Read-only.*\); nothing was changed"):
        undo(backups)
    assert path.read_bytes() == b"new"
    monkeypatch.undo()
    undo(backups)
    assert path.read_bytes() == b"old"


def test_a_run_that_changed_nothing_leaves_nothing_to_undo(tmp_path: Path) -> None:
    path, backups = tmp_path / "a", tmp_path / "backups"
    path.write_bytes(b"1")
    write_changes([FileChange(path, b"1", b"2", "")], backups)
    (tmp_path / "file").write_bytes(b"")
    failing = [FileChange(path, b"2", b"3", ""), FileChange(tmp_path / "file" / "b", None, b"3", "")]
    with pytest.raises(ChangeError, match="nothing was changed"):
        write_changes(failing, backups)
    assert path.read_bytes() == b"2" and len(list(backups.iterdir())) == 1
    assert undo(backups).problems == [] and path.read_bytes() == b"1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    files, backups = [tmp_path / "one", tmp_path / "two"], tmp_path / "backups"
    for path in files:
        path.write_bytes(b"old")
    # Where the tests run in the background of a shell, SIGINT is ignored.
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sync = os.fsync

    def interrupted(descriptor: int) -> None:
        signal.raise_signal(number)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    try:
        with pytest.raises(Interrupted, match=r"all 2 files were changed; .*foretool init --undo") as found:
            write_changes([FileChange(path, b"old", b"new", "") for path in files], backups, what="init")
    finally:
        signal.signal(number, before)
    assert found.value.number == number and [each.read_bytes() for each in files] == [b"new", b"new"]
    assert undo(backups).restored == files and [each.read_bytes() for each in files] == [b"old", b"old"]
    assert list(tmp_path.rglob(".*")) == []
