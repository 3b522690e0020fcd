from __future__ import annotations

from foretool.retrieval.rankers.bm25 import Lexical
from foretool.retrieval.rankers.names import Names
from foretool.retrieval.rankers.usage import Habit
from foretool.retrieval.ranking import Ranked, Ranker, Ranking
from foretool.storage.records import ToolId


def test_the_rank_of_a_tool_starts_at_one() -> None:
    ranking = Ranking((Ranked(ToolId("a"), 2.0), Ranked(ToolId("b"), 1.0)), total=2)
    assert [ranking.rank_of(ToolId(name)) for name in "abc"] == [1, 2, 0]


def test_every_ranker_has_a_name_of_its_own() -> None:
    rankers: list[Ranker] = [Lexical(), Names(), Habit(0, {}, {}, {})]
    assert [ranker.name for ranker in rankers] == ["lexical", "name", "usage"]
