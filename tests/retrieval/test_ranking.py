from __future__ import annotations

from foretool.retrieval.ranking import Ranked, Ranking
from foretool.storage.records import ToolId


def test_the_rank_of_a_tool_starts_at_one() -> None:
    ranking = Ranking((Ranked(ToolId("a"), 2.0), Ranked(ToolId("b"), 1.0)), total=2)
    assert [ranking.rank_of(ToolId(name)) for name in "abc"] == [1, 2, 0]
