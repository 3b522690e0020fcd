"""Thresholds of whole lists: measured from what conversations took, kept for each client, and used by `auto`."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, failing_store, proxy_over
from requirements import requirement

from foretool.learning.list_fill import HIDDEN_CALL, LEAST, MOST, MOST_TOKENS, WholeLists, measure_fill
from foretool.storage.records import ConversationCost, Discovery, Exposure, SessionRecord, ToolId
from foretool.storage.store import Store


def of(client: str, times: int, tokens: int = 2000, discoveries: int = 0) -> list[ConversationCost]:
    return [ConversationCost(client, tokens, discoveries)] * times


@requirement("list:whole-by-client")
def test_a_list_of_all_tools_may_cost_what_the_list_and_the_discoveries_cost() -> None:
    found = {each.client: each for each in measure_fill([*of("codex", LEAST, 2000, 2), *of("calm", LEAST, 1500)])}
    assert (found["codex"].tokens, found["codex"].discoveries) == (2000 + 2 * int(HIDDEN_CALL), 2.0)
    assert (found["calm"].tokens, found["calm"].list_tokens) == (1500, 1500.0)


def test_the_lower_end_counts_where_conversations_differ() -> None:
    (found,) = measure_fill([*of("c", 30), *of("c", 10, 2000, 2)])
    mean = 2000 + int(HIDDEN_CALL) * 0.5
    assert 2000 < found.tokens < mean


def test_few_conversations_and_clients_without_a_name_say_nothing() -> None:
    assert list(measure_fill([*of("c", LEAST - 1, 2000, 3), *of("", 2 * LEAST, 2000, 3)])) == []


def test_only_the_latest_conversations_count() -> None:
    (found,) = measure_fill([*of("c", MOST, 2000), *of("c", 50, 2000, 9)])
    assert (found.tokens, found.conversations) == (2000, MOST)


def test_a_client_that_searches_without_end_gets_no_endless_list() -> None:
    (found,) = measure_fill(of("loop", LEAST, 2000, 1000))
    assert found.tokens == MOST_TOKENS


def converse(store: Store, key: str, *, version: str = "1", policy: str = "frozen", discoveries: int = 2) -> None:
    """Keep one conversation of a client whose list had 500 tokens."""
    store.sessions.begin(SessionRecord(key, "codex", version, "legacy", "stdio", "", float(len(key))))
    store.sessions.add_exposure(Exposure(key, 1.0, policy, 1, (ToolId("calc__add"),), 500, "list"))
    for _ in range(discoveries):
        store.discoveries.add(Discovery(key, 2.0, "add", (), None, "high", (), 100, 1.0))


def test_only_conversations_whose_list_hid_tools_are_read() -> None:
    store, _ = failing_store()
    converse(store, "a")
    converse(store, "b", policy="full")
    converse(store, "c", discoveries=0)  # nothing was called or searched
    assert store.sessions.conversations(10) == [ConversationCost("codex", 500, 2)]


@requirement("list:whole-by-client")
@pytest.mark.anyio
async def test_a_client_that_searches_often_is_listed_everything_whatever_its_version() -> None:
    store, _ = failing_store()
    for number in range(LEAST):
        converse(store, f"s{number}", discoveries=1)
    result = WholeLists(store).learn(lambda *_: None)
    assert (result.kind, result.outcome) == ("whole", "promoted")
    assert result.reason.startswith("codex: all tools up to 4,500 tokens (1.00 discoveries")
    assert WholeLists(store).learn(lambda *_: None).outcome == "kept"
    wide = FakeUpstream("calc", [f"tool_{number}" for number in range(80)])
    settings = {"store": store, "list_tokens": 800, "list_whole": True, "policy": "auto"}
    async with proxy_over(wide, **settings) as stage:
        for name, listed in (("codex", 83), ("nobody", 3)):
            client = stage.connect()
            await client.initialize(name, "2")
            assert len(await client.list_tools()) == listed, name
    assert [each.whole_tokens for each in store.clients.all() if each.client == "codex"] == [4500, 4500]
    async with proxy_over(wide, **{**settings, "policy": "frozen"}) as stage:
        await stage.client.initialize("codex", "2")
        assert len(await stage.client.list_tools()) == 3  # the user said which policy


@requirement("list:whole-by-client")
@pytest.mark.anyio
@pytest.mark.parametrize(("tools", "listed"), [(99, 102), (101, 3)])
async def test_a_list_that_is_too_long_for_some_clients_is_not_shown_whole(tools: int, listed: int) -> None:
    store, _ = failing_store()
    store.sessions.begin(SessionRecord("s", "codex", "1", "legacy", "stdio", "", 1.0))
    store.clients.set_whole("codex", MOST_TOKENS)
    upstream = FakeUpstream("calc", [f"tool_{number}" for number in range(tools)])
    async with proxy_over(upstream, store=store, list_tokens=700, list_whole=True, policy="auto") as stage:
        await stage.client.initialize("codex", "1")
        assert len(await stage.client.list_tools()) == listed


def test_without_conversations_nothing_is_measured() -> None:
    store, _ = failing_store()
    assert WholeLists(store).learn(lambda *_: None).outcome == "skipped"
