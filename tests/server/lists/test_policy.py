"""What `auto` chooses: measurement first, then the name, then one attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, changed, failing_store, proxy_over
from requirements import requirement

from foretool.server.lists.policy import (
    CODE_SESSIONS,
    LATE_S,
    MOST_FOR_CODE,
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
TOOLS = 200
OURS = {"discover_tools", "call_tool", "call_tool_write"}
SETTINGS: dict[str, Any] = {"policy": "auto", "list_tokens": 800, "list_whole": True}


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


def meta(call: str) -> dict[str, Any]:
    """What Codex 0.171.0 writes into `_meta` of a call, as far as it matters."""
    return {"callId": call, "x-codex-turn-metadata": {"model": "m", "codex_version": "0.171.0"}}


CODE, MODEL = meta("exec-20b1de3f-4a07-4cb6-a1f4-7e3d2a6c7d0a"), meta("call_Yx1")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    upstream = FakeUpstream("calc", [f"tool_{number}" for number in range(TOOLS)])
    store, _ = failing_store()
    async with proxy_over(upstream, store=store, **SETTINGS) as stage:
        yield stage


async def converse(stage: Stage, *calls: dict[str, Any], version: str = "1") -> int:
    """The number of tools that a new session lists; it then calls one with each `_meta`."""
    client = stage.connect()
    await client.initialize("codex-mcp-client", version)
    listed = await client.list_tools()
    assert {*listed} >= OURS
    for each in calls:
        await client.call_tool("call_tool_write", {"name": "calc__tool_7", "arguments": {}}, meta=each)
    return len(listed)


@requirement("list:model-code")
@pytest.mark.anyio
async def test_all_tools_are_listed_to_a_client_whose_calls_came_from_code_of_its_model(stage: Stage) -> None:
    assert await converse(stage, CODE) == len(OURS)
    assert await converse(stage, CODE, version="2") == TOOLS + len(OURS)
    (record,) = [each for each in stage.store.clients.all() if each.version == "2"]
    assert record.code_sessions == CODE_SESSIONS


@requirement("list:model-code")
@pytest.mark.anyio
async def test_a_call_that_the_model_makes_itself_ends_it(stage: Stage) -> None:
    await converse(stage, CODE)
    assert await converse(stage, MODEL) == TOOLS + len(OURS)
    assert await converse(stage) == len(OURS)


@requirement("list:model-code")
@pytest.mark.anyio
async def test_sessions_that_call_nothing_end_it_as_their_model_may_have_no_room_for_all_tools(stage: Stage) -> None:
    await converse(stage, CODE)
    for _ in range(CODE_SESSIONS):
        assert await converse(stage) == TOOLS + len(OURS)
    assert await converse(stage) == len(OURS)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tools", "settings"),
    [
        (MOST_FOR_CODE + 1, {**SETTINGS, "max_tools": MOST_FOR_CODE + 1}),
        (TOOLS, {**SETTINGS, "policy": "frozen"}),
        (TOOLS, {**SETTINGS, "list_whole": False}),
    ],
)
async def test_neither_too_many_tools_nor_what_the_user_set_otherwise(tools: int, settings: dict[str, Any]) -> None:
    upstream = FakeUpstream("calc", [f"tool_{number}" for number in range(tools)])
    store, _ = failing_store()
    async with proxy_over(upstream, store=store, **settings) as stage:
        await converse(stage, CODE)
        assert await converse(stage, CODE) == len(OURS)
