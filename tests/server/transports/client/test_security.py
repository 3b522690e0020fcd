"""From where requests may come to the HTTP server."""

from __future__ import annotations

import pytest

from foretool.server.protocol.headers import Headers
from foretool.server.transports.client.security import Guards, Rates, RequestRefused, without_port


def check(guards: Guards, **headers: str) -> int:
    """The status of the refusal; 0 if there is none."""
    lines = {"host": "localhost", **headers}
    try:
        guards.check(Headers((name.encode(), value.encode("latin-1")) for name, value in lines.items()))
    except RequestRefused as refused:
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
        with pytest.raises(RequestRefused, match=f"{name.decode()} came more than once"):
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


def taken(rates: Rates, principal: str, now: float) -> str:
    try:
        rates.take(principal, now)
    except RequestRefused as error:
        assert error.status == 429
        return error.headers["retry-after"]
    return ""


def test_a_minutes_requests_may_come_at_once_and_then_as_many_as_fit() -> None:
    rates = Rates(60)
    assert [taken(rates, "ann", 100.0) for _ in range(61)] == [""] * 60 + ["1"]
    assert [taken(rates, "ann", 101.0) for _ in range(2)] == ["", "1"]
    assert [taken(rates, "ann", 1000.0) for _ in range(61)] == [""] * 60 + ["1"]
    assert [taken(Rates(1), "ann", now) for now in (0.0,)] == [""]


def test_nobody_pays_for_the_requests_of_another() -> None:
    rates = Rates(2)
    assert [taken(rates, "eve", 5.0) for _ in range(4)] == ["", "", "30", "30"]
    assert taken(rates, "ann", 5.0) == ""


def test_without_a_limit_nothing_is_kept_and_who_is_quiet_is_forgotten() -> None:
    rates = Rates(0)
    assert not any(taken(rates, "ann", 1.0) for _ in range(10_000))
    rates = Rates(10)
    for at in range(1000):
        rates.take(f"p{at}", 0.0)
    rates.forget(7.0)
    assert not rates._full_at


def test_the_refusal_says_when_to_come_back() -> None:
    rates = Rates(1)
    rates.take("ann", 0.0)
    with pytest.raises(
        RequestRefused, match=r"more than 1 requests in a minute \(requests_per_minute\); come back in 60 s"
    ):
        rates.take("ann", 0.0)
