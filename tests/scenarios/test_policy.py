"""`auto`: the policy follows the era and what was seen of a client's name and version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import LIST_CHANGED, FakeClient, FakeUpstream, failing_store, proxy_over
from requirements import requirement

from foretool.server.lists import growth
from foretool.server.lists import policy as list_policy
from foretool.server.lists.policy import TRIES
from foretool.storage.store import Store

pytestmark = pytest.mark.anyio


def policies(store: Store) -> list[str]:
    """The policy of the first list of each session, the oldest session first."""
    return [store.sessions.exposures(each.key)[0].policy for each in store.sessions.recent()[::-1]]


@requirement("policy:auto:unknown")
async def test_an_unknown_client_and_every_modern_one_get_a_frozen_list() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize("nobody")
        await stage.client.list_tools()
        modern = stage.connect().modern("claude-code")
        await modern.list_tools()
        assert policies(stage.store) == ["frozen", "frozen"]


@requirement("policy:auto:known")
async def test_a_client_known_to_re_list_gets_a_growing_list() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize("claude-code")
        await stage.client.list_tools()
        assert policies(stage.store) == ["growing"]


@requirement("policy:auto:demotion", "policy:auto:recovery")
async def test_a_client_that_did_not_list_again_twice_is_demoted_and_stays_so_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    store, _ = failing_store()
    upstream = FakeUpstream("calc", ["add", "subtract", "divide"])
    async with proxy_over(upstream, store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        for name in ("calc__add", "calc__subtract"):
            await stage.client.discover(names=[name])
            await asyncio.sleep(0.2)  # of the loop's own time: the window closes without a list
        ledger = store.clients.get("claude-code", "2.1", "legacy")
        assert ledger is not None
        assert (ledger.announced, ledger.relisted) == (2, 0)
        # It is known to list again, so it is tried once more, now and then, and no more than that.
        for _ in range(2):
            await stage.client.discover(names=["calc__divide"])
            await asyncio.sleep(0.2)  # of the loop's own time
        assert stage.client.count(LIST_CHANGED) == 3
    async with proxy_over(upstream, store=store) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        other_version = stage.connect()
        await other_version.initialize("claude-code", "2.2")
        await other_version.list_tools()
    assert policies(store) == ["growing", "frozen", "growing"]


@requirement("policy:auto:recovery")
async def test_a_client_that_was_slow_once_is_tried_again_and_grown_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("newcomer", "1")
        await stage.client.list_tools()
        await search(stage.client, "calc__add", lists=False)
        await asyncio.sleep(0.2)  # of the loop's own time: the window closes without a list
        await stage.client.list_tools()  # late: a busy machine
        monkeypatch.setattr(growth, "RELIST_S", 2.0)
        for name in ("calc__add", "calc__subtract"):
            again = stage.connect()
            await again.initialize("newcomer", "1")
            await again.list_tools()
            await search(again, name, lists=True)
    ledger = store.clients.get("newcomer", "1", "legacy")
    assert ledger is not None
    assert (ledger.recent, ledger.tries, ledger.late) == ("011", 2, 1)
    assert policies(store) == ["frozen", "frozen", "growing"]


@requirement("policy:auto:recovery")
async def test_a_list_that_comes_long_after_an_announcement_is_not_late_but_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    monkeypatch.setattr(list_policy, "LATE_S", 0.2)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("newcomer", "1")
        await stage.client.list_tools()
        await search(stage.client, "calc__add", lists=False)
        await asyncio.sleep(0.5)  # of the loop's own time
        await stage.client.list_tools()
    ledger = store.clients.get("newcomer", "1", "legacy")
    assert ledger is not None
    assert (ledger.recent, ledger.late) == ("0", 0)


@requirement("policy:auto:promotion")
async def test_an_unknown_client_that_lists_again_after_a_change_is_grown_for() -> None:
    store, _ = failing_store()
    upstream = FakeUpstream("calc", ["add"], entry={"pin": ["*"], "trust": "auto"})
    async with proxy_over(upstream, store=store) as stage:
        await stage.client.initialize("newcomer", "1")
        await stage.client.list_tools()
        upstream.change("add", "divide")
        await stage.client.heard(LIST_CHANGED)
        await stage.client.list_tools()
        ledger = store.clients.get("newcomer", "1", "legacy")
        assert ledger is not None
        assert (ledger.announced, ledger.relisted) == (1, 1)
        again = stage.connect()
        await again.initialize("newcomer", "1")
        await again.list_tools()
    assert policies(store) == ["frozen", "growing"]


def tools() -> FakeUpstream:
    return FakeUpstream("calc", ["add", "subtract"])


async def search(client: FakeClient, name: str, *, lists: bool) -> Any:
    """Discover a tool as a client that lists again when told to, or as one that does not; return the answer."""
    before = client.count(LIST_CHANGED)
    question = client.post("tools/call", {"name": "discover_tools", "arguments": {"names": [name]}})
    if lists:
        await client.heard(LIST_CHANGED, before + 1)
        await client.list_tools()
    return await client.result(question)


@requirement("policy:auto:try", "policy:auto:promotion")
async def test_an_unknown_client_that_lists_again_at_its_first_search_is_grown_for_at_once() -> None:
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=60_000, list_whole=False) as stage:
        await stage.client.initialize("newcomer", "1")
        before = await stage.client.ask("tools/list")
        await search(stage.client, "calc__add", lists=True)
        after = await stage.client.ask("tools/list")
        assert after["tools"][:-1] == before["tools"]
        assert after["tools"][-1]["name"] == "calc__add"
        assert (await stage.client.call_tool("calc__add", {}))["content"]
        await search(stage.client, "calc__subtract", lists=True)
        assert (await stage.client.list_tools())[-2:] == ["calc__add", "calc__subtract"]
        again = stage.connect()
        await again.initialize("newcomer", "1")
        await again.list_tools()
    ledger = store.clients.get("newcomer", "1", "legacy")
    assert ledger is not None
    assert (ledger.announced, ledger.relisted, ledger.tries) == (2, 2, 1)
    assert policies(store) == ["frozen", "growing"]


@requirement("policy:auto:try")
async def test_an_unknown_client_that_does_not_list_again_is_tried_once_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("newcomer", "1")
        await stage.client.list_tools()
        first = await search(stage.client, "calc__add", lists=False)
        await asyncio.sleep(0.2)  # of the loop's own time: the window closes without a list
        second = await search(stage.client, "calc__add", lists=False)
        await search(stage.client, "calc__subtract", lists=False)
        # It was never given the tool, so no answer says that it was: both show how to call it through a bridge.
        shown = [answer["content"][0]["text"].replace(" ", "") for answer in (first, second)]
        assert all("call_tool" in text for text in shown), shown
        called = await stage.client.call_tool("call_tool_write", {"name": "calc__add", "arguments": {}})
        assert not called.get("isError")
        again = stage.connect()
        await again.initialize("newcomer", "1")
        await again.list_tools()
        await search(again, "calc__add", lists=False)
        assert (stage.client.count(LIST_CHANGED), again.count(LIST_CHANGED)) == (1, 0)
    ledger = store.clients.get("newcomer", "1", "legacy")
    assert ledger is not None
    assert (ledger.announced, ledger.relisted, ledger.recent, ledger.tries) == (1, 0, "0", 1)
    assert policies(store) == ["frozen", "frozen"]


@requirement("policy:auto:try")
async def test_the_list_of_a_new_conversation_is_no_answer_to_what_was_announced_in_the_last_one() -> None:
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        for name in ("calc__add", "calc__subtract"):
            await stage.client.initialize("newcomer", "1")
            await stage.client.list_tools()
            await search(stage.client, name, lists=False)
    ledger = store.clients.get("newcomer", "1", "legacy")
    assert ledger is not None
    assert (ledger.announced, ledger.relisted) == (1, 0)
    assert policies(store) == ["frozen", "frozen"]


@requirement("policy:auto:try")
async def test_a_client_that_leaves_after_an_answer_was_held_for_it_in_vain_is_measured() -> None:
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("brief", "1")
        await stage.client.list_tools()
        await search(stage.client, "calc__add", lists=False)
        assert stage.client._front is not None
        stage.client._front.close()
    ledger = store.clients.get("brief", "1", "legacy")
    assert ledger is not None
    assert (ledger.announced, ledger.relisted) == (1, 0)


@requirement("policy:auto:try")
async def test_a_client_that_always_leaves_before_its_answer_is_not_tried_for_ever() -> None:
    store, _ = failing_store()
    told = []
    async with proxy_over(tools(), store=store, hold_ms=400, list_whole=False) as stage:
        for _ in range(TRIES + 2):
            client = stage.connect()
            await client.initialize("hasty", "1")
            await client.list_tools()
            client.post("tools/call", {"name": "discover_tools", "arguments": {"names": ["calc__add"]}})
            await asyncio.sleep(0.3)  # of the loop's own time: it leaves while the answer is held
            told.append(client.count(LIST_CHANGED))
            assert client._front is not None
            client._front.close()
    assert told == [1] * TRIES + [0, 0]


@requirement("policy:auto:try", "list:growing:budget")
async def test_a_full_list_gains_one_tool_at_most_for_the_attempt() -> None:
    async with proxy_over(tools(), hold_ms=60_000, list_tokens=1) as stage:
        await stage.client.initialize("newcomer", "1")
        await stage.client.list_tools()
        question = stage.client.post(
            "tools/call", {"name": "discover_tools", "arguments": {"names": ["calc__subtract", "calc__add"]}}
        )
        await stage.client.heard(LIST_CHANGED)
        assert (await stage.client.list_tools())[3:] == ["calc__subtract"]
        await stage.client.result(question)


@requirement("policy:auto:try", "list:frozen:unmoved-by-requests")
async def test_no_modern_client_is_tried() -> None:
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, list_whole=False) as stage:
        client = stage.client.modern("newcomer")
        client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        before = await client.list_tools()
        await client.discover(names=["calc__add"])
        assert await client.list_tools() == before
        assert client.count(LIST_CHANGED) == 0
    assert [(each.tries, each.announced) for each in store.clients.all()] == [(0, 0)]


async def test_a_modern_client_that_does_not_listen_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, policy="growing", hold_ms=60_000, list_whole=False) as stage:
        client = stage.client.modern("deaf")
        await client.list_tools()
        # No answer waits for it, either.
        assert (await client.discover(names=["calc__add"]))["matches"]
        await asyncio.sleep(0.2)  # of the loop's own time: a window would have closed
    assert [each.announced for each in store.clients.all()] == [0]


@requirement("policy:auto:try")
async def test_a_client_that_lists_on_its_own_schedule_is_not_taken_for_one_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 2.0)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("poller", "1")
        for _ in range(5):
            await stage.client.list_tools()
            await asyncio.sleep(1.0)  # of the loop's own time
        await search(stage.client, "calc__add", lists=False)
        await asyncio.sleep(0.5)
        await stage.client.list_tools()
    ledger = store.clients.get("poller", "1", "legacy")
    assert ledger is not None
    assert (ledger.announced, ledger.relisted) == (1, 0)


@requirement("policy:auto:demotion")
async def test_a_client_that_took_the_name_of_another_is_treated_as_it_behaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.1)
    store, _ = failing_store()
    async with proxy_over(tools(), store=store, hold_ms=10, list_whole=False) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        await search(stage.client, "calc__add", lists=False)
        await asyncio.sleep(0.2)  # of the loop's own time
        # The genuine client of that name and version is told of a change one day, and lists again.
        for _ in range(2):
            genuine = stage.connect()
            await genuine.initialize("claude-code", "2.1")
            await genuine.list_tools()
            assert genuine._front is not None
            genuine._front.tools.announce()
            await genuine.heard(LIST_CHANGED)
            await genuine.list_tools()
        last = stage.connect()
        await last.initialize("claude-code", "2.1")
        await last.list_tools()
    assert policies(store)[-1] == "growing"


@requirement("policy:explicit")
@pytest.mark.parametrize("policy", ["frozen", "growing", "full"])
async def test_a_policy_that_is_set_holds_for_every_client(policy: str) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"]), policy=policy) as stage:
        await stage.client.initialize("claude-code")
        await stage.client.list_tools()
        await stage.connect().modern().list_tools()
        assert policies(stage.store) == [policy, policy]
