"""Where `serve --http` listens."""

from __future__ import annotations

import pytest

from foretool.server.config.addresses import Address, is_loopback, parse_address


@pytest.mark.parametrize("written", ["127.0.0.1:8399", "[::1]:1", "localhost:0", "unix:/run/me/http.sock"])
def test_an_address_is_read_and_written_alike(written: str) -> None:
    assert str(parse_address(written)) == written


def test_the_home_folder_may_hold_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_address("unix:~/x.sock") == Address("", 0, "/home/me/x.sock")


@pytest.mark.parametrize(
    "written", ["", "8399", "127.0.0.1:70000", "unix:", "unix:x.sock", "unix:/x/", "unix:/x\n", ":1"]
)
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_address(written)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_addresses_only_this_machine_can_reach(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.168.0.1", "localhost.evil", "127.0.0.1.evil"])
def test_addresses_others_can_reach(host: str) -> None:
    assert not is_loopback(host)
