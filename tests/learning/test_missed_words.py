"""Misses that a discovery found are read with their words and with what stood above the needed tool."""

from __future__ import annotations

from foretool.learning.timeline import read_missed
from foretool.storage.opening import open_store
from foretool.storage.records import Discovery, Match, Miss, MissedNeed, Noticed, ToolId

TOOLS = {ToolId(name): None for name in ("mail", "maps", "news", *(f"t{at}" for at in range(9)))}


def missed(at: float, tool: str, query: str, discovery: int, rank: int, noticed: Noticed = "discovery") -> Miss:
    return Miss("s", at, tool, noticed, "rank", rank, 9, query, (), 0, discovery, "", "discovered", 1, 90)


def answered(*tools: str) -> Discovery:
    matches = tuple(Match(ToolId(tool), rank, 1.0) for rank, tool in enumerate(tools, 1))
    return Discovery("s", 1.0, "send a letter", (), None, "high", matches, 10, 1.0)


def test_a_miss_gives_the_words_the_tool_and_what_stood_above_it() -> None:
    with open_store(":memory:") as store:
        first = store.discoveries.add(answered("news", "gone", "mail", "maps"))
        long = store.discoveries.add(answered(*(f"t{at}" for at in range(8)), "mail"))
        store.calls.record(
            [],
            [
                missed(2.0, "mail", "send a letter", first, 3),
                missed(3.0, "maps", "", 0, 0, "call"),
                missed(4.0, "gone", "send a letter", first, 2),
                missed(5.0, "mail", "post it", long, 9),
            ],
        )
        assert read_missed(store, TOOLS) == [
            MissedNeed(2.0, "send a letter", ToolId("mail"), (ToolId("news"),)),
            MissedNeed(5.0, "post it", ToolId("mail"), tuple(ToolId(f"t{at}") for at in range(5))),
        ]


def test_a_search_that_did_not_show_the_tool_had_all_that_it_showed_above_it() -> None:
    with open_store(":memory:") as store:
        first = store.discoveries.add(answered("news", "maps"))
        store.calls.record([], [missed(2.0, "mail", "send a letter", first, 0, "search"),
                                missed(3.0, "", "post it", first, 0, "search")])  # fmt: skip
        assert read_missed(store, TOOLS) == [
            MissedNeed(2.0, "send a letter", ToolId("mail"), (ToolId("news"), ToolId("maps")))
        ]
