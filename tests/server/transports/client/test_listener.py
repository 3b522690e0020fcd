"""The sockets that clients connect to."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from foretool.server.config.addresses import Address
from foretool.server.system.peers import is_own_peer
from foretool.server.transports.client.http_rules import BindError
from foretool.server.transports.client.listener import Listener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own" / "http.sock"


def listen(path: Path) -> Listener:
    return Listener(Address("", 0, str(path)))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_socket_is_for_its_user_alone_and_goes_with_its_process(path: Path) -> None:
    made = listen(path)
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        made.socket.setblocking(True)
        server, _ = made.socket.accept()
        with server:
            assert is_own_peer(server)
    made.close()
    assert not path.exists()


def test_the_socket_of_a_process_that_has_ended_is_replaced(path: Path) -> None:
    listen(path).socket.close()
    made = listen(path)
    made.close()
    assert not path.exists()


def test_a_socket_in_use_is_left_alone(path: Path) -> None:
    made = listen(path)
    with pytest.raises(BindError, match="another process serves"):
        listen(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    made.close()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_no_socket_of_ours_is_left_alone(path: Path, kind: str) -> None:
    path.parent.mkdir(mode=0o700)
    kept = path.parent / "kept"
    kept.write_text("kept")
    if kind == "file":
        path.write_text("kept")
    elif kind == "link":
        path.symlink_to(kept)
    else:
        path.mkdir()
    with pytest.raises(BindError, match="is not a socket of ours"):
        listen(path)
    assert path.exists()
    assert kept.read_text() == "kept"


@pytest.mark.parametrize("shared", [0o755, 0o777, 0o1777, 0o770])
def test_a_folder_that_others_can_enter_is_refused(path: Path, shared: int) -> None:
    path.parent.mkdir()
    path.parent.chmod(shared)
    with pytest.raises(BindError, match="others can enter"):
        listen(path)
    assert list(path.parent.iterdir()) == []


def test_a_socket_that_was_replaced_is_not_removed(path: Path) -> None:
    made = listen(path)
    path.unlink()
    other = listen(path)
    made.close()
    assert path.exists()
    other.close()


def test_a_path_that_cannot_be_had_is_said_so(path: Path) -> None:
    with pytest.raises(BindError, match="No such file or directory; choose another path"):
        listen(path.parent / "a" / "b" / "c.sock")
    with pytest.raises(BindError, match="more than 100 bytes"):
        listen(path.parent / ("x" * 120))


def test_a_port_in_use_is_said_so() -> None:
    made = Listener(Address())
    assert made.address.port
    made.socket.listen()
    with pytest.raises(BindError, match="Address already in use; choose another address in bind"):
        Listener(made.address)
    made.close()


def test_a_peer_of_another_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert is_own_peer(one)
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert not is_own_peer(one)
