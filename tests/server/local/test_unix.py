"""Sockets in a folder that is ours alone."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from local_fakes import HERE
from requirements import requirement

from foretool.server.local import unix
from foretool.server.local.places import name_socket
from foretool.server.local.unix import SocketFolder


def test_the_folder_is_closed_and_so_is_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "foretool" / "run"
    with SocketFolder(str(folder), make=True) as place, place.listen("a.sock"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o600
        assert place.names() == ["a.sock"]


def test_a_long_path_is_no_obstacle_where_the_folder_has_a_handle(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40) / "run"
    with SocketFolder(str(folder), make=True) as place, place.listen("a.sock"):
        stream = place.connect("a.sock", 5)
        assert stream is not None
        with stream:
            stream.send(b"hello", 5)


def test_a_long_path_is_refused_in_words_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "_BY_HANDLE", "/nowhere")
    folder = tmp_path / ("long" * 40) / "run"
    with (
        SocketFolder(str(folder), make=True) as place,
        pytest.raises(OSError, match="over 100 bytes; set FORETOOL_SOCKETS"),
    ):
        place.listen("a.sock")
    short = tmp_path / "r"
    if len(str(short)) < 90:
        with SocketFolder(str(short), make=True) as place, place.listen("a.sock"):
            stream = place.connect("a.sock", 5)
            assert stream is not None
            with stream:
                stream.send(b"hello", 5)


@requirement("local:stale")
def test_a_sweep_removes_what_nobody_listens_to_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with SocketFolder(str(folder), make=True) as place:
        alive, dead, full = (name_socket(HERE, each) for each in ("alive", "dead", "full"))
        place.listen(dead).close()
        (folder / name_socket(HERE, "file")).write_text("kept")
        (folder / name_socket(HERE, "link")).symlink_to(folder / dead)
        foreign = "ffffffff" + dead[8:]
        place.listen(foreign).close()
        with place.listen(alive), place.listen(full) as crowded:
            crowded.listen(0)
            waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(str(folder / full)) if len(str(folder / full)) < 100 else None
            assert place.sweep() == 1
            for each in waiting:
                each.close()
        kept = {alive, full, foreign, name_socket(HERE, "file"), name_socket(HERE, "link")}
        assert set(place.names()) == kept
