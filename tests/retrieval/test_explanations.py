"""A tool in a ranking comes with the reasons for it."""

from __future__ import annotations

from tools import catalog

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query


def pipeline() -> Pipeline:
    return Pipeline(Corpus(catalog()))


def test_a_task_in_words_finds_its_tool_and_says_why() -> None:
    ranking = pipeline().rank(Query(("open an issue in my repository",)))
    best = ranking.ranked[0]
    assert best.tool == "github__create_issue"
    assert best.reasons == ("words: open, issue, repository",)
    assert best.parts == {"lexical": best.score}
    assert ranking.total == len(ranking.ranked)


def test_a_misspelt_name_is_first_and_says_so() -> None:
    best = pipeline().rank(Query(("whois_domian for the domain availability check",))).ranked[0]
    assert (best.tool, best.reasons[0]) == ("domains__whois_domain", "similar name")
