"""What a ranking says of a tool's place: names, words as they are written, translated words."""

from __future__ import annotations

from tools import catalog, tool

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.storage.records import Tool


def pipeline(*more: Tool) -> Pipeline:
    return Pipeline(Corpus([*catalog(), *more]))


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


def test_a_chinese_task_finds_english_tools_and_says_by_which_words() -> None:
    best = pipeline().rank(Query(("用 github 创建一个 issue",))).ranked[0]
    assert best.tool == "github__create_issue"
    assert best.reasons == ("words: issue, github", "words translated: 创建 (create)")


def test_chinese_words_of_a_chinese_tool_are_its_own_and_their_english_is_not() -> None:
    rail = tool("rail", "tickets", "查询余票信息")
    asked = {"余票": "words: 余票", "remaining": "words translated: remaining", "火车 tickets": "words: tickets"}
    for task, reason in asked.items():
        [best] = pipeline(rail).rank(Query((task,))).ranked
        assert best.reasons == (reason,)
