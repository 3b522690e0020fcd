"""`auto`: the policy follows the era and what was seen of a client's name and version."""

from __future__ import annotations

import asyncio

import pytest
from fakes import LIST_CHANGED, FakeUpstream, failing_store, proxy_over
from requirements import requirement

from foretool.server.clients import tool_list
from foretool.storage.stores import Store

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


@requirement("policy:auto:demotion")
async def test_a_client_that_did_not_list_again_is_demoted_and_stays_so_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_list, "RELIST_S", 0.1)
    store, _ = failing_store()
    upstream = FakeUpstream("calc", ["add", "subtract"])
    async with proxy_over(upstream, store=store, hold_ms=10) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        await stage.client.discover(names=["calc__add"])
        await asyncio.sleep(0.2)  # of the loop's own time: the window closes without a list
        ledger = store.clients.get("claude-code", "2.1", "legacy")
        assert ledger is not None
        assert (ledger.announced, ledger.relisted) == (1, 0)
        await stage.client.discover(names=["calc__subtract"])
        assert stage.client.count(LIST_CHANGED) == 1
    async with proxy_over(upstream, store=store) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        other_version = stage.connect()
        await other_version.initialize("claude-code", "2.2")
        await other_version.list_tools()
    assert policies(store) == ["growing", "frozen", "growing"]


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


@requirement("policy:explicit")
@pytest.mark.parametrize("policy", ["frozen", "growing", "full"])
async def test_a_policy_that_is_set_holds_for_every_client(policy: str) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"]), policy=policy) as stage:
        await stage.client.initialize("claude-code")
        await stage.client.list_tools()
        await stage.connect().modern().list_tools()
        assert policies(stage.store) == [policy, policy]
