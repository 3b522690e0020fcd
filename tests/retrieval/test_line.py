"""One line of a task: which of its scores stand highest, and how well it was met."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.line import ENTROPY_DEPTH, NeedScores


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2000))
def test_the_leaders_of_a_line_have_every_high_score_in_the_order_of_the_hits(scores: list[int]) -> None:
    line = NeedScores(Corpus(), "")
    line.hits = {slot: score / 7 for slot, score in enumerate(scores)}
    least = sorted(line.hits.values(), reverse=True)[:ENTROPY_DEPTH][-1]
    high = [(slot, score) for slot, score in line.hits.items() if score >= least]
    assert [each for each in line.leaders if each[1] >= least] == high
    assert line.best == sorted(line.hits.values(), reverse=True)[:ENTROPY_DEPTH]
