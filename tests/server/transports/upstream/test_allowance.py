"""The loop's time that an upstream may take for what nobody asked."""

from __future__ import annotations

from foretool.server.transports.upstream.allowance import BURST_S, LEAST_PAUSE_S, MOST_PAUSE_S, SHARE, Allowance


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_replies_that_were_asked_for_cost_nothing() -> None:
    allowance = Allowance(Clock())
    for _ in range(100):
        allowance.note_request()
        assert allowance.spend(10.0, 1, 1) == 0.0


def test_replies_that_nobody_asked_for_cost_as_much_as_notifications() -> None:
    for replies in (0, 100):
        assert Allowance(Clock()).spend(1.0, 100, replies) > 0


def test_junk_costs_as_well() -> None:
    assert Allowance(Clock()).spend(1.0, 0, 0) > 0


def test_in_the_long_run_it_has_its_share_of_the_time() -> None:
    clock = Clock()
    allowance, spent = Allowance(clock), 0.0
    while clock.now < 100:
        pause = allowance.spend(0.01, 10, 0)
        spent += 0.01
        clock.now += 0.01 + pause
    assert 0.9 * SHARE < spent / clock.now < 1.1 * SHARE + BURST_S / clock.now


def test_a_moment_of_much_is_free_and_no_pause_is_endless() -> None:
    allowance = Allowance(Clock())
    assert allowance.spend(BURST_S * 0.9, 10, 0) == 0.0
    assert allowance.spend(BURST_S * 0.1 + 1e-6, 10, 0) == LEAST_PAUSE_S
    assert allowance.spend(1000.0, 10, 0) == MOST_PAUSE_S
