"""How many requests each principal may send."""

from __future__ import annotations

import pytest

from foretool.server.transports.client.rates import Rates
from foretool.server.transports.client.security import Refused


def taken(rates: Rates, principal: str, now: float) -> str:
    try:
        rates.take(principal, now)
    except Refused as error:
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
    with pytest.raises(Refused, match=r"more than 1 requests in a minute \(requests_per_minute\); come back in 60 s"):
        rates.take("ann", 0.0)
