"""The weights of the sum follow the log, as far as it says enough."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

# ruff: noqa: E402
from learned_fakes import Counted
from tools import catalog

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.training.factors import (
    PRIOR_STEPS,
    ScoredStep,
    _gradient,
    _loss,
    fit,
    rank_called,
    rank_crossed,
    score_parts,
)
from foretool.retrieval.training.replay import StepRanks
from foretool.storage.records import Episode, ToolId

SEARCH, FETCH = ToolId("web__search"), ToolId("web__fetch")
UPSTREAM_OF = {tool.id: tool.upstream for tool in catalog()}


def example(episode: int, called: int, **parts: list[float]) -> ScoredStep:
    return ScoredStep(episode, {name: np.array(part, np.float32) for name, part in parts.items()}, called)


def test_the_gradient_by_hand() -> None:
    # Two tools, scores f x (1, 0) with f = 1, s = 1: chances e/(e+1) = .7311 and .2689; the second was called.
    held, called = [np.array([[1.0, 0.0]])], [1]
    assert _gradient(held, called, np.ones(1), 1.0).tolist() == pytest.approx([0.7311], abs=1e-4)
    assert _loss(held, called, np.ones(1), 1.0) == pytest.approx(1.3133, abs=1e-4)  # -log .2689


def test_a_part_that_misleads_comes_to_count_less_and_one_that_tells_more() -> None:
    found = [example(number, 0, words=[0.0, 1.0, 0.0], history=[1.0, 0.0, 0.0]) for number in range(400)]
    factors = fit(found)
    assert factors["words"] < 0.6 < 1.4 < factors["history"]
    assert {each.ranks for each in rank_called(found, {})} == {(1,)}
    assert {each.ranks for each in rank_called(found, {"words": 2.0})} == {(2,)}
    assert {each.ranks for each in rank_called(found, factors)} == {(1,)}


def test_few_steps_hardly_move_what_ships() -> None:
    few = [example(number, 0, words=[0.0, 1.0], history=[1.0, 0.0]) for number in range(3)]
    many = few * int(PRIOR_STEPS * 10)
    assert abs(fit(few)["words"] - 1.0) < 0.1 < abs(fit(many)["words"] - 1.0)
    assert fit([]) == {}


def test_half_is_ranked_with_factors_of_the_other_half() -> None:
    found = [example(number, 0, words=[0.0, 1.5], history=[1.0, 0.0]) for number in range(200)]
    assert {each.ranks for each in rank_called(found, {})} == {(2,)}
    assert rank_crossed(found) == [StepRanks((1,))] * 200
    assert rank_crossed(found[:1]) == [StepRanks((2,))]


def test_examples_are_the_steps_with_the_parts_of_every_tool() -> None:
    learned = LearnedModels({"dtdr": Counted({"": {"web__search": 1}, "web__search": {"web__fetch": 1}})})
    pipeline = Pipeline(Corpus(catalog()), None, learned)
    found = list(score_parts(pipeline, [Episode((SEARCH, FETCH), ("a page",))], UPSTREAM_OF))
    assert [(each.episode, sorted(each.parts)) for each in found] == [(0, ["history", "lexical"])] * 2
    ids = [tool.id for tool in catalog()]
    assert [ids[each.called] for each in found] == [SEARCH, FETCH]
    assert list(score_parts(Pipeline(Corpus(catalog())), [Episode((SEARCH,), ("a page",))], UPSTREAM_OF)) == []
