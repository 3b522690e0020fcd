"""The outcome of a discovery: the tool called for it, another need, or unknown."""

from __future__ import annotations

from foretool.storage.discovery_outcomes import FOLLOWS_S, discovery_outcomes
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, DiscoveryOutcome, Match, ToolId
from foretool.storage.stores import Store

A, B, C = ToolId("a"), ToolId("b"), ToolId("c")


def asked(store: Store, at: float, *tools: ToolId, session: str = "s", handle: str = "", p: float | None = 0.7) -> int:
    matches = tuple(Match(tool, rank, 1.0) for rank, tool in enumerate(tools, 1))
    found = Discovery(session, at, "task", (), None, "high", matches, 100, 1.0, handle=handle, probability=p)
    return store.discoveries.add(found)


def called(
    store: Store, at: float, tool: ToolId, discovery: int = 0, *, hidden: bool = True, session: str = "s"
) -> None:
    store.calls.record([Call(session, at, tool, "u", "bridge", hidden, "ok", 1.0, True, "", discovery)])


def test_the_first_tool_called_for_a_discovery_was_needed() -> None:
    with open_store(":memory:") as store:
        one = asked(store, 10.0, A, B, C)
        called(store, 11.0, C, one)
        called(store, 12.0, A, one)
        assert discovery_outcomes(store.discoveries) == [DiscoveryOutcome(10.0, 0.7, 3)]


def test_another_search_or_call_means_that_the_needed_tool_was_not_found() -> None:
    with open_store(":memory:") as store:
        asked(store, 10.0, A)
        asked(store, 20.0, B, p=None)
        called(store, 21.0, C)
        assert discovery_outcomes(store.discoveries) == [
            DiscoveryOutcome(10.0, 0.7, None),
            DiscoveryOutcome(20.0, None, None),
        ]


def test_a_discovery_has_no_outcome_if_nothing_soon_follows_in_its_conversation() -> None:
    with open_store(":memory:") as store:
        asked(store, 10.0, A, session="one")
        asked(store, 20.0, A, session="two")
        called(store, 20.0 + FOLLOWS_S + 1, C, session="two")
        asked(store, 30.0, A, session="three", handle="x")
        asked(store, 31.0, A, session="three", handle="y")
        called(store, 32.0, C, hidden=False, session="three")
        assert discovery_outcomes(store.discoveries) == []


def test_discoveries_without_a_match_or_by_name_have_no_outcome() -> None:
    with open_store(":memory:") as store:
        asked(store, 10.0)
        store.discoveries.add(Discovery("s", 11.0, "", ("a",), None, "high", (Match(A, 1, 1.0),), 1, 1.0))
        asked(store, 12.0, B)
        asked(store, 13.0, B)
        assert [outcome.at for outcome in discovery_outcomes(store.discoveries)] == [12.0]


def test_the_latest_outcomes_are_read_and_come_oldest_first() -> None:
    with open_store(":memory:") as store:
        for at in range(5):
            called(store, at + 0.5, A, asked(store, float(at), A))
        assert [outcome.at for outcome in discovery_outcomes(store.discoveries, limit=2)] == [3.0, 4.0]


def test_a_need_decides_every_discovery_soon_before_it_and_none_at_the_same_time() -> None:
    with open_store(":memory:") as store:
        for at in (10.0, 20.0, 30.0, 40.0):
            store.discoveries.add(
                Discovery("s", at, "t", (), None, "high", (Match(A, 1, 1.0),), 1, 1.0, handle=str(at))
            )
        for at, handle in ((10.0, "10.0"), (20.0 + FOLLOWS_S, "20.0"), (30.1 + FOLLOWS_S, "30.0"), (40.5, "40.0")):
            store.calls.record([Call("s", at, C, "u", "bridge", True, "ok", 1.0, True, "", 0, handle=handle)])
        assert [outcome.at for outcome in discovery_outcomes(store.discoveries)] == [20.0, 40.0]
    with open_store(":memory:") as store:
        for at in (10.0, 20.0, 30.0):
            asked(store, at, A)
        called(store, 31.0, C)
        called(store, 32.0, C)
        assert [outcome.at for outcome in discovery_outcomes(store.discoveries)] == [10.0, 20.0, 30.0]
