"""What was learned is a named part of every score, over z-scores, with an encoder and without one."""

from __future__ import annotations

import pytest
from requirements import requirement

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from learned_fakes import START, Counted, Detector, Relations, Swamping  # noqa: E402
from tiny_model import HashEncoder  # noqa: E402
from tools import catalog, ids, tool  # noqa: E402

from foretool.retrieval.corpus import Corpus  # noqa: E402
from foretool.retrieval.encoders.slow import Ahead  # noqa: E402
from foretool.retrieval.pipeline import Pipeline  # noqa: E402
from foretool.retrieval.rankers.learned import CLIP, WEIGHTS, Factors, LearnedModels  # noqa: E402
from foretool.retrieval.ranking import Query  # noqa: E402
from foretool.storage.records import ToolId, Usage  # noqa: E402
from tests.retrieval.rankers.test_dense import ALIKE, meant  # noqa: E402

COUNTS = {
    START: {"web__search": 3, "web__fetch": 1},
    "web__search": {"web__fetch": 9, "END": 1},
}


def models(*more: object, factors: Factors | None = None) -> LearnedModels:
    return LearnedModels({"dtdr": Counted(COUNTS), **{each.name: each for each in more}}, factors)  # type: ignore[attr-defined]


def alone(*more: object, factors: Factors | None = None) -> Pipeline:
    return Pipeline(Corpus(catalog()), None, models(*more, factors=factors))


def test_the_part_by_hand() -> None:
    learned = models()
    learned.align(ids("web__search", "web__fetch", "a__b", "a__c"), (1,), None)
    (part,) = learned.parts(Query(), None).items()
    # Probabilities .75, .25, 0, 0: mean .25, deviation sqrt((.25 + 0 + .0625 + .0625) / 4) = .30619.
    expected = [WEIGHTS["history"] * (value - 0.25) / 0.30619 for value in (0.75, 0.25, 0.0, 0.0)]
    assert part[0] == "history"
    np.testing.assert_allclose(part[1], expected, atol=1e-4)


def test_a_sharp_peak_among_many_tools_is_cut() -> None:
    learned = LearnedModels({"dtdr": Counted({START: {"t0": 1}})})
    learned.align([ToolId(f"t{number}") for number in range(500)], (1,), None)
    part = learned.parts(Query(), None)["history"]
    assert part[0] == pytest.approx(WEIGHTS["history"] * CLIP)
    assert abs(part[1:]).max() < 0.1


@requirement("masstool:trust")
def test_scores_that_say_how_far_they_are_to_be_believed_are_not_scaled_again() -> None:
    class Doubtful(Counted):
        in_deviations = True

    learned = LearnedModels({"masstool": Doubtful({START: {"t0": 1}})})
    learned.align([ToolId("t0"), ToolId("t1")], (1,), None)
    assert {name: part.tolist() for name, part in learned.parts(Query(), None).items()} == {"tasks": [1.0, 0.0]}
    learned.align([ToolId("t1")], (2,), None)
    assert learned.parts(Query(), None) == {}


def test_a_text_is_read_once_by_each_encoder_for_meaning_and_models() -> None:
    class All(Counted):
        reads_all_encoders = True

        def score(self, query, vector):
            sizes.append(len(vector))
            return super().score(query, vector)

    sizes: list[int] = []
    corpus, encoders = Corpus(catalog()), [HashEncoder(alike=ALIKE), HashEncoder("small", dimension=32)]
    learned = LearnedModels({"dtdr": Counted(COUNTS), "masstool": All(COUNTS)})
    pipeline = Pipeline(corpus, meant(corpus, catalog(), *encoders), learned)
    (best, *_) = pipeline.rank(Query(("a page of the web",))).ranked
    assert {"hash", "small", "history", "tasks"} <= best.parts.keys()
    assert [each.asked for each in encoders] == [["a page of the web"], ["a page of the web"]]
    assert sizes == [64 + 32]


@pytest.mark.parametrize("trained_with, sees", [("hash+small", True), ("", True), ("other+small", False)])
def test_a_model_is_given_vectors_of_the_encoders_it_was_trained_with_alone(trained_with: str, sees: bool) -> None:
    class All(Counted):
        reads_all_encoders = True

        def align(self, tools, vectors):
            given.append(vectors is not None)
            super().align(tools, vectors)

        def score(self, query, vector):
            given.append(vector is not None)
            return super().score(query, vector)

    given: list[bool] = []
    corpus, encoders = Corpus(catalog()), [HashEncoder(alike=ALIKE), HashEncoder("small", dimension=32)]
    learned = LearnedModels({"masstool": All(COUNTS)}, trained_with={"masstool": trained_with})
    Pipeline(corpus, meant(corpus, catalog(), *encoders), learned).rank(Query(("a page of the web",)))
    assert given == [sees, sees]


def test_a_text_that_an_encoder_could_not_read_is_read_again_when_it_is_looked_for_again() -> None:
    remote, corpus = HashEncoder("remote", alike=ALIKE), Corpus(catalog())
    slow = Ahead(remote)
    pipeline = Pipeline(corpus, meant(corpus, catalog(), slow, HashEncoder("small")), models())
    asked = Query(("crawl the site", "a page of the web"))
    slow.fetch(["a page of the web"])
    pipeline.rank(asked)  # the other line, and both in one, were not answered
    assert list(pipeline._readings) == ["a page of the web"]
    slow.fetch(["crawl the site", "crawl the site\na page of the web"])
    without, found = Pipeline(corpus, pipeline.dense, models()), pipeline.rank(asked)
    assert found == without.rank(asked)
    assert all(each.any() for reading in pipeline._readings.values() for each in reading)
    assert len(pipeline._readings) == 3


@requirement("learn:parts")
def test_history_decides_between_tools_that_words_cannot_tell_apart_and_says_why() -> None:
    query = Query(("a page of the web",), history=(ToolId("web__search"),))
    before = Pipeline(Corpus(catalog())).rank(query)
    after = alone().rank(query, {ToolId("web__fetch"): Usage(ToolId("web__fetch"), 9, 0, 0.0)})
    assert after.ranked[0].tool == "web__fetch"
    assert after.ranked[0].parts["history"] > 0.5
    assert "usually follows web__search" in after.ranked[0].reasons
    never_called = alone().rank(query).ranked[0]
    assert (never_called.tool, "usually follows web__search" in never_called.reasons) == ("web__fetch", False)
    assert "history" not in before.ranked[0].parts
    for each in after.ranked:
        assert sum(each.parts.values()) == pytest.approx(each.score, abs=1e-4)


@requirement("learn:familiar")
@pytest.mark.parametrize("familiar", [0.0, 0.5, 1.0])
def test_what_a_model_says_counts_as_far_as_the_task_is_like_a_past_one(familiar: float) -> None:
    class Knowing(Counted):
        def familiarity(self, vector: object, lines: object) -> float:
            return familiar

    def pipeline(model: Counted) -> Pipeline:
        return Pipeline(Corpus(catalog()), None, LearnedModels({"dtdr": model}))

    query = Query(("a page of the web",))
    known, whole = pipeline(Knowing(COUNTS)), pipeline(Counted(COUNTS))
    parts, all_parts = known.parts(query), whole.parts(query)
    assert known.rank(query).is_learned == bool(familiar)
    np.testing.assert_allclose(
        parts.get("history", 0 * all_parts["history"]), familiar * all_parts["history"], atol=1e-6
    )
    # Before the first call it is predicted by the words alone, after it by the calls.
    assert known.after((), query.lines)[0].get(ToolId("web__search"), 0.0) == pytest.approx(0.75 * familiar)
    begun = (ToolId("web__search"),)
    assert known.after(begun, query.lines) == whole.after(begun, query.lines)


@requirement("learn:parts")
def test_with_an_encoder_and_several_lines_the_parts_still_make_up_the_score() -> None:
    corpus = Corpus(catalog())
    pipeline = Pipeline(corpus, meant(corpus, catalog()), models())
    for lines in (("a page of the web",), ("a page of the web", "open a bug")):
        ranking = pipeline.rank(Query(lines, history=(ToolId("web__search"),)))
        for each in ranking.ranked:
            assert sum(each.parts.values()) == pytest.approx(each.score, abs=1e-3)
        assert {"lexical", "hash", "history"} <= {part for each in ranking.ranked for part in each.parts}
        assert ranking.evidence[0].nearness is not None


@requirement("learn:without")
def test_without_models_every_ranking_is_what_it_was() -> None:
    corpus = Corpus(catalog())
    for query in (Query(("open a bug",)), Query(names=("fetch",)), Query(), Query(("one", "web page"))):
        for meaning in (None, meant(corpus, catalog())):
            assert Pipeline(corpus, meaning, None).rank(query) == Pipeline(corpus, meaning).rank(query)
            assert Pipeline(corpus, meaning, LearnedModels({})).rank(query) == Pipeline(corpus, meaning).rank(query)


def test_without_words_the_history_ranks() -> None:
    found = alone().rank(Query(history=(ToolId("web__search"),)))
    assert [each.tool for each in found.ranked] == ["web__fetch"]
    assert found.evidence == ()


def test_what_comes_next_follows_the_corpus() -> None:
    pipeline = alone()
    assert pipeline.after(()) == ({"web__search": 0.75, "web__fetch": 0.25}, 0.0)
    assert pipeline.after((ToolId("web__search"),)) == ({"web__fetch": pytest.approx(0.9)}, 0.1)
    pipeline.corpus.replace("web", [tool("web", "search", "Find pages on the web.")])
    assert pipeline.after((ToolId("web__search"),)) == ({}, 0.1)
    assert Pipeline(Corpus(catalog())).after(()) == ({}, 0.0)


@requirement("learn:parts")
def test_what_a_match_needs_is_lifted_towards_it_and_says_what_it_feeds() -> None:
    relations = Relations([("users__getUser", "web__fetch")])
    plain = alone().rank(Query(("download a page",)))
    found = alone(relations).rank(Query(("download a page",)))
    assert plain.rank_of(ToolId("users__getUser")) == 0
    assert found.rank_of(ToolId("users__getUser")) == 2
    lifted = found.ranked[1]
    assert lifted.score == pytest.approx(0.9 * found.ranked[0].score)
    assert "feeds web__fetch" in lifted.reasons
    assert sum(lifted.parts.values()) == pytest.approx(lifted.score, abs=1e-4)
    after = alone(relations).rank(Query(("download a page",), history=(ToolId("users__getUser"),)))
    assert "takes what users__getUser gives" in after.ranked[0].reasons


def test_factors_are_for_the_encoders_they_were_fitted_with() -> None:
    query = Query(("a page of the web",), history=(ToolId("web__search"),))
    plain = alone().rank(query).ranked[0].parts
    halved = alone(factors=Factors("", {"history": 0.5})).rank(query).ranked[0].parts
    other = alone(factors=Factors("minilm", {"history": 0.5})).rank(query).ranked[0].parts
    assert halved["history"] == pytest.approx(0.5 * plain["history"])
    assert halved["lexical"] == pytest.approx(plain["lexical"])
    assert other == plain


@requirement("learn:detection")
def test_a_line_that_needs_no_tool_says_so_to_the_gate() -> None:
    found = alone(Detector("thanks")).rank(Query(("a page of the web", "thanks for the page")))
    assert [each.needed for each in found.evidence] == [0.99, 0.01]
    assert [each.needed for each in alone().rank(Query(("a page",))).evidence] == [None]


@requirement("learn:unseen")
def test_a_tool_that_came_after_training_is_still_found() -> None:
    known = [tool.id for tool in catalog() if tool.id != "time__convert_time"]
    pipeline = Pipeline(Corpus(catalog()), None, LearnedModels({"masstool": Swamping(*known)}))
    found = pipeline.rank(Query(("convert a time between zones",)))
    assert found.rank_of(ToolId("time__convert_time")) == 4  # a quarter of the places
    lifted = found.ranked[3]
    assert lifted.parts["new"] > 0.0
    assert sum(lifted.parts.values()) == pytest.approx(lifted.score, abs=1e-3)
    assert "new" not in found.ranked[0].parts


def test_while_a_corpus_is_filled_words_alone_rank() -> None:
    corpus = Corpus(catalog())
    pipeline = Pipeline(corpus, meant(corpus, catalog()), models())
    query = Query(("a page of the web",))
    pipeline.is_filling = True
    assert pipeline.rank(query) == Pipeline(Corpus(catalog())).rank(query)
    assert pipeline.after(()) == ({}, 0.0)
    pipeline.is_filling = False
    assert {"history", "hash"} <= pipeline.rank(query).ranked[0].parts.keys()
