"""Tools come, change and go, and a corpus with a past is as good as a new one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tools import catalog, tool

from foretool.retrieval.corpus import Corpus, digest, digest_query
from foretool.retrieval.document import Document, document, embedded_text
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.bm25 import Lexical
from foretool.retrieval.ranking import Query, Ranking
from foretool.storage.records import Tool, ToolId


def first(ranking: Ranking, count: int = 1) -> list[ToolId]:
    return [each.tool for each in ranking.ranked[:count]]


def test_the_text_of_a_server_finds_its_tools() -> None:
    corpus = Corpus(catalog(), {"time": "Everything about calendars"})
    assert first(Pipeline(corpus).rank(Query(("calendar",)))) == ["time__convert_time"]


def test_removed_tools_are_gone_and_may_come_back() -> None:
    corpus = Corpus(catalog())
    corpus.replace("github", ())
    assert len(corpus) == 6 and ToolId("github__create_issue") not in corpus.slot_of
    query = Query(("create an issue", "create_issue"))
    assert not any("github" in each.tool for each in Pipeline(corpus).rank(query).ranked)
    corpus.replace("github", [each for each in catalog() if each.upstream == "github"])
    assert first(Pipeline(corpus).rank(query)) == ["github__create_issue"]


def test_an_id_that_moves_to_another_server_is_one_tool() -> None:
    corpus = Corpus(catalog())
    moved = replace(tool("web", "fetch", "Quite another text"), upstream="proxy")
    corpus.replace("proxy", [moved])
    assert len(corpus) == len(catalog())
    corpus.replace("web", ())
    assert first(Pipeline(corpus).rank(Query(("another text",)))) == [moved.id]


ACTIONS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 400)), max_size=8)


@pytest.mark.slow
@settings(max_examples=15)
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


@pytest.mark.slow
@settings(max_examples=10)
@given(ACTIONS, st.integers(0, 8))
def test_a_copy_ranks_as_a_new_corpus_and_leaves_the_first_one_as_it_was(
    actions: list[tuple[str, int]], copied_at: int
) -> None:
    corpus, state, kept = Corpus(), dict[str, list[Tool]](), dict[str, list[Tool]]()
    first_one = corpus
    for at, (server, count) in enumerate(actions):
        if at == copied_at:
            corpus, kept = corpus.copy(), dict(state)
        state[server] = [tool(server, f"get_{number}", f"Version {at % 2}, number {number}") for number in range(count)]
        corpus.replace(server, state[server])
    query = Query(("version 1 number 7", "get_3", "get 5"), servers_in_use=("a",))
    for each, tools in ((corpus, state), *([(first_one, kept)] if first_one is not corpus else [])):
        fresh = Corpus([one for theirs in tools.values() for one in theirs])
        old, new = (Pipeline(one).rank(query, limit=9) for one in (each, fresh))
        assert [(found.tool, pytest.approx(found.score)) for found in old.ranked] == [
            (found.tool, found.score) for found in new.ranked
        ]


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


def test_wordings_are_read_beside_the_servers_words_and_go_again() -> None:
    corpus = Corpus(catalog())
    plain = {tool.id: corpus.digests[corpus.slot_of[tool.id]] for tool in catalog()}
    fetch = ToolId("web__fetch")
    assert corpus.take_wordings({plain[fetch]: ("grab this article",)}) == {"web"}
    corpus.replace("web", [each for each in catalog() if each.upstream == "web"])
    now = {tool.id: corpus.digests[corpus.slot_of[tool.id]] for tool in catalog()}
    assert {tool for tool in plain if plain[tool] != now[tool]} == {fetch}
    assert corpus.lexical.search({"articl": 1.0}).keys() == {corpus.slot_of[fetch]}
    assert corpus.take_wordings({}) == {"web"}
    corpus.replace("web", [each for each in catalog() if each.upstream == "web"])
    assert {tool.id: corpus.digests[corpus.slot_of[tool.id]] for tool in catalog()} == plain
    assert corpus.lexical.search({"articl": 1.0}) == {}


def test_without_wordings_every_score_is_what_it_was() -> None:
    before, after = Corpus(catalog()), Corpus()
    assert after.take_wordings({b"of another text": ("never met",)}) == set()
    for server in dict.fromkeys(each.upstream for each in catalog()):
        after.replace(server, [each for each in catalog() if each.upstream == server])
    for term in ("issu", "repositori", "page", "time"):
        assert after.lexical.search({term: 1.0}) == before.lexical.search({term: 1.0})
    assert before.digests == after.digests


def test_wordings_do_not_make_a_tool_a_wide_one() -> None:
    rich = tool("a", "rich", " ".join(f"word{number}" for number in range(140)))
    corpus, other = Corpus([rich]), Corpus()
    key = corpus.digests[0]
    other.take_wordings({key: tuple(f"wish{number} for{number}" for number in range(30))})
    other.replace("a", [rich])
    assert other.lexical.search({"word7": 1.0})[0] >= 0.9 * corpus.lexical.search({"word7": 1.0})[0]


@pytest.mark.slow
def test_a_server_that_changes_all_its_tools_is_read_tool_by_tool_and_searched_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, done, add = 700, [0], Lexical.add

    def counted(*arguments: Any) -> Any:
        done[0] += 1
        return add(*arguments)

    monkeypatch.setattr(Lexical, "add", counted)

    def listed(version: int) -> list[Tool]:
        return [tool("a", f"get_{at}", f"Version {version} of number {at}") for at in range(count)]

    corpus, query = Corpus(listed(0)), Query(("number 3", "get_5"))
    ranker, compacted = Pipeline(corpus), 0
    for version in range(1, 4):
        done[0], longest, slots = 0, 0, len(corpus.ids)
        for at, _ in enumerate(corpus.replacing("a", listed(version))):
            longest, done[0] = max(longest, done[0]), 0
            if at % 10 == 0:
                assert all(each.tool in corpus.slot_of for each in ranker.rank(query).ranked)
        assert max(longest, done[0]) == 1, "several tools are read in one part"
        compacted += len(corpus.ids) < slots
        fresh = Pipeline(Corpus(listed(version))).rank(query)
        assert [each.tool for each in ranker.rank(query).ranked] == [each.tool for each in fresh.ranked]
        assert corpus.slots_of["a"] == tuple(corpus.slot_of[each.id] for each in listed(version))
    assert compacted, "no gaps were closed"


def coats(read: Document) -> tuple[str, ...]:
    return ("which coat to put on",) if read.name == "fetch" else ()


def test_shipped_wordings_are_read_until_a_tool_has_its_own_and_again_when_those_are_gone() -> None:
    tools = {server: [each for each in catalog() if each.upstream == server] for server in ("web", "time")}
    corpus = Corpus([each for theirs in tools.values() for each in theirs], shipped=coats)
    fetch = ToolId("web__fetch")
    with_coat = corpus.digests[corpus.slot_of[fetch]]
    assert corpus.lexical.search({"coat": 1.0}).keys() == {corpus.slot_of[fetch]}
    plain = Corpus(tools["web"])
    key = plain.digests[plain.slot_of[fetch]]
    assert key != with_coat, "an encoder reads another text"
    assert corpus.take_wordings({key: ("grab this article",)}) == {"web"}
    corpus.replace("web", tools["web"])
    assert corpus.lexical.search({"coat": 1.0}) == {} and corpus.lexical.search({"articl": 1.0})
    assert corpus.take_wordings({}) == {"web"}
    corpus.replace("web", tools["web"])
    assert corpus.digests[corpus.slot_of[fetch]] == with_coat


def test_shipped_wordings_can_be_taken_away_from_a_copy_alone() -> None:
    corpus = Corpus([each for each in catalog() if each.upstream == "web"], shipped=coats)
    other = corpus.copy()
    assert other.take_shipped(coats) == set(), "nothing has changed"
    assert other.take_shipped(None) == {"web"}
    other.replace("web", [each for each in catalog() if each.upstream == "web"])
    assert other.lexical.search({"coat": 1.0}) == {} and corpus.lexical.search({"coat": 1.0})
    plain = Corpus([each for each in catalog() if each.upstream == "web"])
    assert set(other.digests) - {b""} == set(plain.digests)


def test_a_chinese_tool_is_found_by_english_words_and_keeps_its_wordings() -> None:
    """What `foretool enrich` has asked is kept under the hash of the text without English."""
    rail, other = tool("rail", "get-tickets", "查询余票信息"), tool("web", "fetch", "Downloads a page")
    corpus = Corpus()
    plain = digest(embedded_text(document(rail)))
    corpus.take_wordings({plain: ("a seat to Leeds",)})
    corpus.replace("rail", [rail])
    corpus.replace("web", [other])
    read, key = corpus.read(rail)
    assert key == plain and read.wordings == ("a seat to Leeds",)
    slot = corpus.slot_of[rail.id]
    assert corpus.digests[slot] == digest(embedded_text(read)) != plain
    assert corpus.digests[corpus.slot_of[other.id]] == digest(embedded_text(document(other)))
    assert corpus.lexical.search({"remain": 1.0}).keys() == {slot}
    assert corpus.translated == {rail.id: frozenset({"query", "remain", "information"})}, (
        "its own words are not among them"
    )
    assert corpus.copy().translated == corpus.translated
    corpus.replace("rail", [])
    assert corpus.translated == {}


def test_a_text_to_search_with_has_another_hash_only_if_it_has_chinese() -> None:
    assert digest_query("open an issue") == digest("open an issue")
    assert digest_query("创建 issue") != digest("创建 issue")
