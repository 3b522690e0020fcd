"""From where requests may come to the HTTP server."""

from __future__ import annotations

import pytest

from foretool.server.protocol.headers import Headers
from foretool.server.transports.client.security import Guards, Refused, without_port


def check(guards: Guards, **headers: str) -> int:
    """The status of the refusal; 0 if there is none."""
    lines = {"host": "localhost", **headers}
    try:
        guards.check(Headers((name.encode(), value.encode("latin-1")) for name, value in lines.items()))
    except Refused as refused:
        return refused.status
    return 0


def test_a_port_is_told_from_an_address() -> None:
    assert [without_port(host) for host in ("a:1", "a", "[::1]:80", "[::1]", "a:b")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
        "a:b",
    ]


def test_a_header_that_says_two_things_is_refused() -> None:
    for name in (b"authorization", b"mcp-session-id", b"host", b"origin", b"transfer-encoding"):
        lines = [(b"host", b"localhost"), (name, b"localhost"), (name, b"localhost")]
        with pytest.raises(Refused, match=f"{name.decode()} came more than once"):
            Guards().check(Headers(lines))


def test_hosts_and_origins_are_those_of_this_machine_or_named() -> None:
    guards = Guards(["mcp.example", "10.0.0.5:80", "0.0.0.0"], ["https://app.example/"])
    assert check(guards, host="MCP.example:1") == 0
    assert check(guards, host="10.0.0.5:81") == 421
    assert check(guards, host="0.0.0.0:80") == 421
    assert check(guards, host="") == 421
    assert check(guards, origin="HTTPS://APP.example") == 0
    assert check(guards, origin="http://[::1]:5") == 0
    for origin in (
        "null", "", "http://evil.example", "http://[", "https://app.example.evil.example",
        "https://evil.example\\@localhost", "http://[::1].evil.example", "http://localhost@evil.example", "http://localhost/",
    ):  # fmt: skip
        assert check(guards, origin=origin) == 403
