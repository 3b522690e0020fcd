"""How much an answer shows."""

from __future__ import annotations

from foretool.server.discovery.answer_shape import LEAST, Shape, enough, shape
from foretool.storage.records import Level

LEVELS: tuple[Level, ...] = ("high", "medium", "low", "none")


def test_each_further_need_has_room_of_its_own() -> None:
    assert shape("high", 12, 12, needs=3) == Shape(7, 5, 0, has_map=False)
    assert shape("high", 4, 12, needs=3) == Shape(4, 0, 0, has_map=False)


def test_five_tools_are_shown_unless_fewer_were_named_and_two_more_for_each_further_clause() -> None:
    assert [enough(k, 0) for k in (0, 1, 2, 3, 4, 9)] == [0, 1, 2, LEAST, LEAST, 9]
    assert [enough(3, clauses) for clauses in (1, 2, 8)] == [LEAST, LEAST + 2, LEAST + 14]
    assert [enough(2, clauses) for clauses in (1, 2)] == [2, 2]


def test_a_tool_that_a_paragraph_names_is_not_all_that_it_needs() -> None:
    assert [enough(1, clauses) for clauses in (0, 1, 2, 8)] == [1, 1, LEAST + 2, LEAST + 14]


def test_whoever_asks_for_more_gets_it_at_every_level() -> None:
    for level in LEVELS:
        asked, wider = shape(level, 40, 0, limit=20), shape(level, 25, 0, widens=True)
        assert (asked.shown, wider.shown) == (20, 25)
        assert not asked.named and not wider.named, "each has a line of its own"


def test_without_matches_the_servers_are_listed() -> None:
    assert shape("high", 0, 12) == Shape(0, 0, 0, has_map=True)
