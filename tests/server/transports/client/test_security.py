"""Who may talk to the HTTP server."""

from __future__ import annotations

import pytest

from foretool.server.protocol.headers import Headers
from foretool.server.transports.client.security import Guards, Refused, is_loopback, without_port


def admit(guards: Guards, **headers: str) -> str | int:
    """The principal, or the status of the refusal."""
    lines = {"host": "localhost", **headers}
    try:
        return guards.admit(Headers((name.encode(), value.encode("latin-1")) for name, value in lines.items()))
    except Refused as refused:
        return refused.status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_addresses_only_this_machine_can_reach(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.168.0.1", "localhost.evil", "127.0.0.1.evil"])
def test_addresses_others_can_reach(host: str) -> None:
    assert not is_loopback(host)


def test_a_port_is_told_from_an_address() -> None:
    assert [without_port(host) for host in ("a:1", "a", "[::1]:80", "[::1]", "a:b")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
        "a:b",
    ]


def test_hosts_and_origins_are_those_of_this_machine_or_named() -> None:
    guards = Guards("", ["mcp.example", "10.0.0.5:80", "0.0.0.0"], ["https://app.example/"])
    assert admit(guards, host="MCP.example:1") == ""
    assert admit(guards, host="10.0.0.5:81") == 421
    assert admit(guards, host="0.0.0.0:80") == 421
    assert admit(guards, host="") == 421
    assert admit(guards, origin="HTTPS://APP.example") == ""
    assert admit(guards, origin="http://[::1]:5") == ""
    for origin in ("null", "", "http://evil.example", "http://[", "https://app.example.evil.example"):
        assert admit(guards, origin=origin) == 403


def test_a_token_is_compared_whole_and_names_its_bearer_without_telling_itself() -> None:
    guards = Guards("s3cret", (), ())
    principal = admit(guards, authorization="bearer s3cret")
    assert isinstance(principal, str)
    assert "s3cret" not in principal
    for wrong in ("", "Bearer", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret"):
        assert admit(guards, authorization=wrong) == 401
