"""Cosines are exact, follow the corpus, and add up with the words as z-scores."""

from __future__ import annotations

from collections import Counter

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from tiny_model import HashEncoder  # noqa: E402
from tools import catalog, ids, tool  # noqa: E402

from foretool.retrieval.corpus import Corpus, digest  # noqa: E402
from foretool.retrieval.document import document, embedded_text  # noqa: E402
from foretool.retrieval.encoders import Encoder  # noqa: E402
from foretool.retrieval.pipeline import Pipeline  # noqa: E402
from foretool.retrieval.rankers.bm25 import Field, Lexical, idf  # noqa: E402
from foretool.retrieval.rankers.dense import (  # noqa: E402
    MOST,
    UNREAD_MOST,
    Dense,
    DenseEnsemble,
    weight_of,
)
from foretool.retrieval.ranking import Nearness, Query  # noqa: E402
from foretool.retrieval.score_sum import LEAD, ScoreSum, fuse_sums, z_scores  # noqa: E402
from foretool.storage.records import Tool, Usage  # noqa: E402

ALIKE = ({"doe", "domain"}, {"bug", "issu"}, {"file", "open"})


def embed(encoder: Encoder, tools: list[Tool]) -> dict[bytes, bytes]:
    texts = [embedded_text(document(each)) for each in tools]
    return {digest(text): row.tobytes() for text, row in zip(texts, encoder.documents(texts), strict=True)}


def meant(corpus: Corpus, tools: list[Tool], *encoders: Encoder) -> DenseEnsemble:
    meaning = DenseEnsemble(encoders or (HashEncoder(alike=ALIKE),))
    for head in meaning.heads:
        head.add(embed(head.encoder, tools))
    meaning.align(corpus.digests, corpus.version, corpus.servers)
    return meaning


def pipeline(*encoders: Encoder) -> Pipeline:
    tools = catalog()
    corpus = Corpus(tools)
    return Pipeline(corpus, meant(corpus, tools, *encoders))


def test_z_scores_by_hand() -> None:
    # Mean 2, deviation sqrt(((1-2)^2 + 0 + (3-2)^2) / 3) = .8165; the last slot is outside of the pool.
    found = z_scores(np.array([1.0, 2.0, 3.0, 9.0], np.float32), np.array([True, True, True, False]))
    np.testing.assert_allclose(found, [-1.2247, 0.0, 1.2247, 0.0], atol=1e-4)
    assert not z_scores(np.array([5.0, 5.0], np.float32), np.array([True, True])).any()


def test_the_sum_by_hand() -> None:
    class Fixed(HashEncoder):
        def queries(self, texts):
            return np.array([[1.0, 0.0]], np.float32)

    meaning = DenseEnsemble([Fixed()])
    vectors = {b"a": [1.0, 0.0], b"b": [0.0, 1.0], b"c": [0.6, 0.8], b"d": [-1.0, 0.0]}
    meaning.heads[0].add({name: np.array(row, np.float32).tobytes() for name, row in vectors.items()})
    meaning.align([b"a", b"b", b"c", b"d"], 1)
    (blend,) = meaning.sums([{1: 4.0}], meaning.readings(["query"]))
    # Cosines 1, 0, .6, -1: mean .15, deviation .7533. Words 0, 4, 0, 0: mean 1, deviation 1.7321.
    cosine = [(value - 0.15) / 0.75333 for value in (1.0, 0.0, 0.6, -1.0)]
    words = [(value - 1.0) / 1.73205 for value in (0.0, 4.0, 0.0, 0.0)]
    np.testing.assert_allclose(
        blend.total, [0.35 * w + 0.70 * c for w, c in zip(words, cosine, strict=True)], atol=1e-4
    )
    np.testing.assert_allclose(blend.total, sum(blend.parts.values()), atol=1e-6)
    assert blend.nearness.encoders == "hash" and blend.nearness.cosines == (1.0,)


def test_words_count_as_much_beside_an_encoder_as_the_best_tool_meets_of_them() -> None:
    # Half of what the words could tell is asked for, so a quarter of it counts half.
    lexical = Lexical([Field(1.0, 0.0)])
    for words in (["cat"], ["dog"], ["emu"], ["fox"]):
        lexical.add_counts([Counter(words)])
    rare = idf(4, 1)
    assert lexical.telling_share({"cat": 1.0}, rare) == 1.0
    unknown = idf(4, 0)
    assert lexical.telling_share({"cat": 1.0, "gnu": 1.0}, 0.25 * (rare + unknown)) == pytest.approx(0.5)
    long = dict.fromkeys(["cat", "dog", "emu", "fox"], 1.0)
    assert lexical.telling_share(long, 1.5 * rare) == 1.0, "a long query is held to three rare words"
    assert lexical.telling_share({"kin": 0.3}, 0.0) == 1.0, "a verb alike tells nothing of its own"


def test_the_share_scales_the_part_of_the_words() -> None:
    tools = [tool("a", name, text) for name, text in (("x", "one cat"), ("y", "two"), ("z", "three"), ("w", "four"))]
    corpus = Corpus(tools)
    meaning = meant(corpus, tools, HashEncoder())
    readings = meaning.readings(["a cat"])
    (whole,), (half,) = (meaning.sums([{0: 2.0}], readings, [share]) for share in (1.0, 0.5))
    np.testing.assert_allclose(half.parts["lexical"], 0.5 * whole.parts["lexical"], atol=1e-6)
    np.testing.assert_allclose(half.parts["hash"], whole.parts["hash"])


def test_meaning_finds_what_shares_no_word() -> None:
    words_alone = Pipeline(Corpus(catalog()))
    query = Query(("whatever a doe is",))
    assert words_alone.rank(query).ranked == ()
    found = pipeline().rank(query)
    assert {each.tool for each in found.ranked[:2]} == set(ids("domains__whois_domain", "domains__check_availability"))
    assert "meaning" in found.ranked[0].reasons
    assert found.evidence[0].nearness is not None


@pytest.mark.parametrize("line", ["whois_domain", "please use createIssue", "fetch"])
def test_an_exact_name_still_comes_first(line: str) -> None:
    alone, both = (each.rank(Query((line,))).ranked[0] for each in (Pipeline(Corpus(catalog())), pipeline()))
    assert both.tool == alone.tool
    assert both.parts["name"] == alone.parts["name"]


def test_what_each_ranker_added_makes_up_the_score() -> None:
    usage = {tool: Usage(tool, 3, 0, 1.0) for tool in ids("web__fetch")}
    for lines in (("open a bug on github",), ("a page of the web", "open a bug", "fetch")):
        ranking = pipeline(HashEncoder("one", ALIKE), HashEncoder("two")).rank(Query(lines), usage)
        assert ranking.ranked
        for each in ranking.ranked:
            assert sum(each.parts.values()) == pytest.approx(each.score, abs=1e-3)
        assert {"lexical", "one", "two"} <= ranking.ranked[0].parts.keys()


STORY = (
    "Our lead asked me to look after the old portal until she is back from her holidays at the end of the next month."
    " Please find out who owns the domain of the portal; then merge the pull request of our colleagues in Lima,"
    " and find web pages about the release."
)


def test_a_paragraph_gains_by_its_clauses_and_servers_by_their_tools() -> None:
    ranking = pipeline().rank(Query((STORY,)))
    parts = {name for each in ranking.ranked for name in each.parts}
    assert {"clauses", "siblings", "lexical", "hash"} <= parts
    for each in ranking.ranked:
        assert sum(each.parts.values()) == pytest.approx(each.score, abs=1e-3)
        assert 0.0 <= each.parts.get("siblings", 0.0) <= MOST + 1e-6
    assert {each.tool for each in ranking.ranked[:4]} >= set(
        ids("domains__whois_domain", "github__merge_pull_request", "web__search")
    )


def test_every_member_of_an_enumeration_puts_its_best_tool_ahead() -> None:
    task = (
        "We need an assistant for our team that merges the pull request of each release, finds the owner of every"
        " domain, and converts the meeting times to other zones"
    )
    leaders = {each.tool for each in pipeline().rank(Query((task,))).ranked if each.parts.get("line", 0.0) >= LEAD}
    assert leaders == set(ids("github__merge_pull_request", "domains__check_availability", "time__convert_time"))


FIRST, SECOND = "Find out who registered the domain of our portal", "then merge the pull request of our colleagues."
ERRANDS = f"{FIRST}, {SECOND}"


def test_a_short_task_of_several_clauses_has_the_tool_of_each_among_the_first() -> None:
    encoder = HashEncoder(alike=ALIKE)
    ranking = pipeline(encoder).rank(Query((ERRANDS,)))
    assert encoder.asked == [ERRANDS, FIRST, SECOND], "each clause is read once"
    assert {each.tool for each in ranking.ranked[:2]} == set(ids("domains__whois_domain", "github__merge_pull_request"))
    for each in ranking.ranked:
        assert sum(each.parts.values()) == pytest.approx(each.score, abs=1e-3)
        assert 0.0 <= each.parts.get("line", 0.0) <= 2 * LEAD + 1e-6, "no tool gains more by being best"
    assert len(ranking.evidence) == 1, "the task is judged as one need"


def test_every_line_has_its_best_tool_among_the_first() -> None:
    found = pipeline().rank(Query(("who owns this domain", "merge a pull request", "find web pages")))
    assert {each.tool for each in found.ranked[:3]} == set(
        ids("domains__whois_domain", "github__merge_pull_request", "web__search")
    )
    assert len(found.evidence) == 3 and all(each.nearness for each in found.evidence)


def test_lines_are_embedded_once_each_and_once_together() -> None:
    encoder = HashEncoder()
    pipeline(encoder).rank(Query(("one need", "another need")))
    assert encoder.asked == ["one need", "another need", "one need\nanother need"]


def test_lines_by_hand() -> None:
    def blend(*total: float) -> ScoreSum:
        return ScoreSum(np.array(total, np.float32), {"lexical": np.array(total, np.float32)}, Nearness())

    # Each line: hits over deviation^.3 * top^.7; whole flat, so it adds nothing. The best of each line is lifted.
    fused = fuse_sums([blend(2, 1, -1), blend(-1, -1, 4)], blend(0, 0, 0), ["a", "b", "c"])
    first = 2 / (np.std([2, 1, 0]) ** 0.3 * 2**0.7)
    third = 4 / (np.std([0, 0, 4]) ** 0.3 * 4**0.7)
    np.testing.assert_allclose(
        fused.total, [first + max(first, third), first / 2, third + max(first, third)], rtol=1e-5
    )


@pytest.mark.parametrize("embedded", [2, 10, 19])
def test_tools_without_a_vector_are_ranked_by_their_words_beside_those_that_have_one(embedded: int) -> None:
    tools = [tool("s", f"get_thing{number}", f"Reads thing number {number}") for number in range(20)]
    corpus = Corpus(tools)
    dense = meant(corpus, tools[:embedded])
    ranker = Pipeline(corpus, dense)
    found = ranker.rank(Query(("read thing 19",)))
    assert found.ranked[0].tool == tools[19].id and found.evidence[0].nearness is not None
    assert 0.0 < found.ranked[0].parts["hash"] <= weight_of("hash") * UNREAD_MOST
    assert ranker.rank(Query(("read thing 1",))).ranked[0].tool == tools[1].id
    assert (dense.is_ready, dense.is_whole) == (True, embedded == 19)


def test_vectors_follow_tools_that_come_and_go() -> None:
    tools, encoder = catalog(), HashEncoder(alike=ALIKE)
    corpus = Corpus(tools)
    ranker = Pipeline(corpus, meant(corpus, tools, encoder))
    corpus.replace("github", ())
    found = ranker.rank(Query(("bug",)))
    assert not any(each.tool.startswith("github") for each in found.ranked)
    late = [tool("tracker", "new_bug", "Report a bug")]
    corpus.replace("tracker", late)
    assert ranker.dense is not None
    ranker.dense.align(corpus.digests, corpus.version, corpus.servers)
    assert ranker.dense.heads[0].missing(filter(None, corpus.digests)) == set(embed(encoder, late))
    ranker.dense.heads[0].add(embed(encoder, late))
    ranker.dense.align(corpus.digests, corpus.version, corpus.servers)
    assert ranker.dense.heads[0].missing(filter(None, corpus.digests)) == set()
    assert ranker.rank(Query(("issue",))).ranked[0].tool == "tracker__new_bug"


def test_vectors_of_tools_long_gone_are_forgotten() -> None:
    dense, encoder = Dense(HashEncoder()), HashEncoder()
    for generation in range(5):
        tools = [tool("s", f"tool{generation}{number}") for number in range(10)]
        vectors = embed(encoder, tools)
        dense.add(vectors)
        dense.align(list(vectors))
        assert dense.known.all() and dense.missing(vectors) == set()
    found = dense.nearness(encoder.queries(["tool43"]))[0]
    np.testing.assert_allclose(found, encoder.documents([embedded_text(document(each)) for each in tools])
                               @ encoder.queries(["tool43"])[0], atol=1e-5)  # fmt: skip
    assert len(dense._index) <= 30


def test_two_tools_are_ranked_by_meaning() -> None:
    tools = [tool("time", "get_current_time"), tool("time", "convert_time")]
    corpus = Corpus(tools)
    ranking = Pipeline(corpus, meant(corpus, tools)).rank(Query(("current",)))
    assert ranking.ranked[0].tool == "time__get_current_time" and ranking.evidence[0].nearness is not None


def test_one_tool_is_ranked_by_words() -> None:
    tools = catalog()[:1]
    corpus = Corpus(tools)
    ranking = Pipeline(corpus, meant(corpus, tools)).rank(Query(("issue",)))
    assert ranking.ranked and ranking.evidence[0].nearness is None
