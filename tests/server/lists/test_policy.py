"""What `auto` chooses: measurement first, then the name, then one attempt."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import changed
from requirements import requirement

from foretool.server.lists.policy import (
    LATE_S,
    TRIES,
    Relisted,
    RelistWatch,
    Told,
    choose_policy,
    explain_policy,
    is_scheduled,
    is_worth_a_try,
)
from foretool.storage.records import ClientRecord

LEDGER = ClientRecord("c", "1", "legacy", 0, 0, 0.0, 0.0)


@requirement("policy:auto:known")
@pytest.mark.parametrize(
    ("wanted", "era", "client", "announced", "relisted", "policy"),
    [
        ("auto", "legacy", "nobody", 0, 0, "frozen"),
        ("auto", "legacy", "Claude-Code", 0, 0, "growing"),
        ("auto", "modern", "claude-code", 9, 9, "frozen"),
        ("auto", "legacy", "claude-code", 4, 1, "frozen"),
        ("auto", "legacy", "nobody", 4, 2, "growing"),
        ("full", "legacy", "nobody", 0, 0, "full"),
        ("growing", "modern", "nobody", 0, 0, "growing"),
    ],
)
def test_the_policy_follows_the_setting_the_era_and_the_ledger(
    wanted: Any, era: Any, client: str, announced: int, relisted: int, policy: str
) -> None:
    ledger = changed(LEDGER, announced=announced, relisted=relisted)
    assert choose_policy(wanted, era, client, ledger) == policy


def test_a_client_without_a_ledger_is_judged_by_its_name() -> None:
    assert choose_policy("auto", "legacy", "opencode", None) == "growing"


@pytest.mark.parametrize(("recent", "policy"), [("1" * 8 + "0" * 8, "growing"), ("1" * 7 + "0" * 9, "frozen")])
def test_only_the_latest_announcements_count(recent: str, policy: str) -> None:
    ledger = changed(LEDGER, announced=400, relisted=300 if policy == "frozen" else 8, recent=recent)
    assert choose_policy("auto", "legacy", "nobody", ledger) == policy


@requirement("policy:auto:recovery")
@pytest.mark.parametrize(
    ("client", "recent", "policy"),
    [
        ("opencode", "0", "growing"),  # one failure of a client that is known to list again decides nothing
        ("opencode", "00", "frozen"),
        ("opencode", "001", "frozen"),
        ("opencode", "00001", "frozen"),
        ("opencode", "000011", "growing"),
        ("nobody", "0", "frozen"),
        ("nobody", "01", "growing"),
        ("nobody", "10", "growing"),
        ("nobody", "100", "frozen"),
        ("nobody", "0000011", "growing"),
    ],
)
def test_a_client_known_to_list_again_has_two_failures_and_recovers_after_two_lists(
    client: str, recent: str, policy: str
) -> None:
    ledger = changed(LEDGER, client=client, announced=len(recent), relisted=recent.count("1"), recent=recent)
    assert choose_policy("auto", "legacy", client, ledger) == policy


@requirement("policy:auto:try")
@pytest.mark.parametrize(
    ("wanted", "era", "client", "more", "tried"),
    [
        ("auto", "legacy", "nobody", {}, True),
        ("auto", "legacy", "nobody", {"tries": TRIES - 1}, True),
        ("auto", "legacy", "nobody", {"tries": TRIES}, False),
        ("auto", "legacy", "nobody", {"announced": 1}, False),
        ("auto", "legacy", "nobody", {"announced": 1, "tries": 1, "late": 1}, True),
        ("auto", "legacy", "nobody", {"announced": 2, "tries": TRIES, "late": 2}, False),
        ("auto", "legacy", "nobody", {"announced": 4, "relisted": 1, "tries": 1}, True),
        ("auto", "legacy", "opencode", {"announced": 1}, False),  # its list grows
        ("auto", "legacy", "opencode", {"announced": 2}, True),
        ("auto", "legacy", "opencode", {"announced": 5, "tries": TRIES}, False),
        ("auto", "legacy", "nobody", {"announced": 1, "relisted": 1}, False),
        ("auto", "legacy", "claude-code", {}, False),
        ("auto", "modern", "nobody", {}, False),
        ("frozen", "legacy", "nobody", {}, False),
        ("full", "legacy", "nobody", {}, False),
    ],
)
def test_a_client_is_tried_that_was_never_measured_or_that_is_likely_to_list_again(
    wanted: Any, era: Any, client: str, more: dict[str, int], tried: bool
) -> None:
    assert is_worth_a_try(wanted, era, client, changed(LEDGER, client=client, **more)) == tried
    if not more:
        assert is_worth_a_try(wanted, era, client, None) == tried


@pytest.mark.parametrize(
    ("delay_s", "unasked", "watched_s", "scheduled"),
    [
        (0.01, 0, 60.0, False),  # it lists only when told
        (0.01, 60, 60.0, False),  # every second, but this soon only by a chance of 1 %
        (0.5, 60, 60.0, True),
        (1.5, 2, 600.0, False),  # every five minutes
        (0.5, 1, 0.7, False),  # twice at its start
        (0.0, 5, 0.0, False),
    ],
)
def test_a_list_that_the_clients_own_schedule_may_have_brought_is_no_answer(
    delay_s: float, unasked: int, watched_s: float, scheduled: bool
) -> None:
    assert is_scheduled(delay_s, unasked, watched_s) == scheduled


def test_a_client_that_always_left_too_soon_is_explained() -> None:
    assert explain_policy(changed(LEDGER, tries=TRIES)) == "not measured: it left too soon, 3 times"


@pytest.mark.parametrize(
    ("client", "recent", "more", "why"),
    [
        ("opencode", "0", {}, "clients of this name are known to list again; this one failed to, once"),
        ("opencode", "00", {}, "when told of a change, it does not list again; it is tried again"),
        ("nobody", "0", {"tries": 1}, "when told of a change, it does not list again"),
        ("nobody", "0", {"tries": 1, "late": 1}, "when told of a change, it lists again too late; it is tried again"),
        ("nobody", "00011", {}, "when told of a change, it lists again 40% of the time, the last two times too"),
        ("nobody", "01", {"tries": 2}, "when told of a change, it lists again 50% of the time"),
    ],
)
def test_what_does_not_follow_from_the_share_alone_is_explained(
    client: str, recent: str, more: dict[str, int], why: str
) -> None:
    seen = changed(LEDGER, client=client, announced=len(recent), relisted=recent.count("1"), recent=recent, **more)
    assert explain_policy(seen) == why


def test_a_client_that_leaves_had_time_to_list_only_if_a_result_was_held_for_that_announcement() -> None:
    watch = RelistWatch()
    assert watch.tell(1.0) and not watch.tell(1.5), "it has not answered the first"
    watch.give_up()
    assert watch.note_list(2.0) == Relisted(1.0)
    watch.tell(3.0)
    assert not watch.close(), "the result was held for an earlier announcement"
    watch.tell(4.0)
    watch.give_up()
    assert watch.close() and not watch.close()


def test_a_list_after_the_time_is_late_and_one_much_later_says_nothing() -> None:
    for delay_s, said in ((LATE_S, Relisted(LATE_S, is_late=True)), (LATE_S + 1, None)):
        watch = RelistWatch()
        watch.tell(1.0)
        assert watch.expire(1.0) and not watch.expire(1.0)
        assert watch.note_list(1.0 + delay_s) == said
        assert watch.state is Told.NOTHING
