"""Which user stands at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from foretool.server.system import peers
from foretool.server.system.peers import find_peer_user, is_own_peer


def test_the_system_names_the_user_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert find_peer_user(one) == os.geteuid()
        assert is_own_peer(one)


def test_another_user_is_not_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        monkeypatch.setattr(os, "geteuid", lambda: 65533)
        assert not is_own_peer(one)


def test_the_form_of_bsd_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bsd:
        family = socket.AF_UNIX

        def __init__(self, version: int) -> None:
            self.answer = struct.pack("IIh16I", version, os.geteuid(), 1, *range(16))

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (0, 1)
            return self.answer

    monkeypatch.delattr(peers.socket, "SO_PEERCRED")
    monkeypatch.setattr("sys.platform", "darwin")
    assert find_peer_user(Bsd(0)) == os.geteuid()  # type: ignore[arg-type]
    assert find_peer_user(Bsd(1)) is None  # type: ignore[arg-type]
    monkeypatch.setattr("sys.platform", "sunos5")
    assert find_peer_user(Bsd(0)) is None  # type: ignore[arg-type]
