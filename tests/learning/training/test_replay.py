"""Later tasks are played again with two sets of models, and the weights of the sum follow the log."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

# ruff: noqa: E402

from learned_fakes import Counted
from tools import catalog

from foretool.learning.training.replay import (
    PRIOR_STEPS,
    Comparison,
    ScoredStep,
    StepRanks,
    _gradient,
    _loss,
    compare_ranks,
    fit_factors,
    rank_called,
    rank_crossed,
    rank_steps,
    replay_steps,
    steps_with_parts,
)
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query
from foretool.storage.records import Episode, ToolId

SEARCH, FETCH, GONE = ToolId("web__search"), ToolId("web__fetch"), ToolId("web__gone")
UPSTREAM_OF = {tool.id: tool.upstream for tool in catalog()}


def test_every_call_is_a_step_and_tools_that_are_gone_are_history() -> None:
    episode = Episode((SEARCH, GONE, FETCH), ("find it\n and read it",))
    lines = ("find it", "and read it")
    assert list(replay_steps(episode, UPSTREAM_OF)) == [
        (Query(lines), SEARCH),
        (Query(lines, (), (SEARCH, GONE), ("web",)), FETCH),
    ]


def test_a_model_that_knows_what_follows_is_better_and_the_figures_say_by_how_much() -> None:
    episodes = [Episode((SEARCH, FETCH), ("a page of the web",))] * 20
    plain = Pipeline(Corpus(catalog()))
    learned = Pipeline(Corpus(catalog()), None, LearnedModels({"dtdr": Counted({SEARCH: {FETCH: 1}, "": {SEARCH: 1}})}))
    old, new = (rank_steps(each, episodes, UPSTREAM_OF) for each in (plain, learned))
    assert {each.ranks for each in old} == {(2, 1)}
    assert {each.ranks for each in new} == {(1, 1)}
    found = compare_ranks(old, new)
    assert found == Comparison(
        20, 40, {"mrr": 0.75, "top5": 1.0, "top10": 1.0}, {"mrr": 1.0, "top5": 1.0, "top10": 1.0}, (0.25, 0.25, 0.25)
    )
    assert found.is_better
    assert not compare_ranks(new, old).is_better
    assert found.report()["difference"] == [0.25, 0.25, 0.25]


def test_a_difference_within_the_error_is_not_better() -> None:
    old = [StepRanks((1,)), StepRanks((2,))] * 5
    new = [StepRanks((1,)), StepRanks((2,))] * 4 + [StepRanks((1,)), StepRanks((1,))]
    found = compare_ranks(old, new)
    assert found.difference[1] > 0.0
    assert not found.is_better
    assert found.may_follow  # one that knows more of the same log has a reason to be better beside these figures


def test_what_follows_its_like_must_be_better_in_the_mean_and_not_worse_outside_the_error() -> None:
    same = [StepRanks((1,)), StepRanks((2,))] * 10
    assert not compare_ranks(same, same).may_follow
    slightly_worse = [StepRanks((1,)), StepRanks((2,))] * 9 + [StepRanks((2,)), StepRanks((2,))]
    assert not compare_ranks(same, slightly_worse).may_follow
    # Better ranks, and tools that leave the first five.
    old, new = [StepRanks((2,)), StepRanks((5,))] * 20, [StepRanks((1,)), StepRanks((6,))] * 20
    assert compare_ranks(old, new).difference[0] > 0.0
    assert not compare_ranks(old, new).may_follow


def test_better_ranks_do_not_make_up_for_tools_that_leave_the_first_five() -> None:
    old = [StepRanks((2,)), StepRanks((5,))] * 20
    new = [StepRanks((1,)), StepRanks((6,))] * 20
    found = compare_ranks(old, new)
    assert found.difference[0] > 0.0 > found.top5[2]
    assert not found.is_better


def test_better_ranks_do_not_make_up_for_fewer_tools_among_the_first_five_in_the_mean() -> None:
    old = [StepRanks((2,)), StepRanks((5,)), StepRanks((6,))] * 20
    new = [StepRanks((1,)), StepRanks((6,)), StepRanks((5,))] * 20
    assert compare_ranks(old, new).is_better
    # One task of 61 loses its tool: within the error, and still less than answers showed before.
    found = compare_ranks([*old, StepRanks((5,))], [*new, StepRanks((6,))])
    assert found.difference[0] > 0.0 and found.top5[0] < 0.0 < found.top5[2] and found.top5[1] < 0.0
    assert found.shows_fewer and not found.is_better


def test_more_tools_among_the_first_five_are_better_where_ranks_are_not_worse() -> None:
    old = [StepRanks((6,)), StepRanks((1,)), StepRanks((2,))] * 20
    new = [StepRanks((5,)), StepRanks((2,)), StepRanks((1,))] * 20
    found = compare_ranks(old, new)
    assert found.difference[0] < 0.0 < found.difference[2]
    assert found.top5[0] > 0.0
    assert found.is_better


def test_without_episodes_nothing_is_better() -> None:
    assert not compare_ranks([], []).is_better
    assert rank_steps(Pipeline(Corpus(catalog())), [Episode((GONE,))], UPSTREAM_OF) == []


def test_a_rank_beyond_the_depth_is_not_found() -> None:
    assert StepRanks((0, 1, 6)).found(5) == pytest.approx(1 / 3)
    assert StepRanks((0, 1, 6)).reciprocal == pytest.approx((1 + 1 / 6) / 3)


def example(episode: int, called: int, **parts: list[float]) -> ScoredStep:
    return ScoredStep(episode, {name: np.array(part, np.float32) for name, part in parts.items()}, called)


def test_the_gradient_by_hand() -> None:
    # Two tools, scores f x (1, 0) with f = 1, s = 1: chances e/(e+1) = .7311 and .2689; the second was called.
    held, called = np.array([[[1.0, 0.0]]], np.float32), np.array([1])
    assert _gradient(held, called, np.ones(1), 1.0).tolist() == pytest.approx([0.7311], abs=1e-4)
    assert _loss(held, called, np.ones(1), 1.0) == pytest.approx(1.3133, abs=1e-4)  # -log .2689


def test_a_part_that_misleads_comes_to_count_less_and_one_that_tells_more() -> None:
    found = [example(number, 0, words=[0.0, 1.0, 0.0], history=[1.0, 0.0, 0.0]) for number in range(400)]
    factors = fit_factors(found)
    assert factors["words"] < 0.6 < 1.4 < factors["history"]
    assert {each.ranks for each in rank_called(found, {})} == {(1,)}
    assert {each.ranks for each in rank_called(found, {"words": 2.0})} == {(2,)}
    assert {each.ranks for each in rank_called(found, factors)} == {(1,)}


def test_few_steps_hardly_move_what_ships() -> None:
    few = [example(number, 0, words=[0.0, 1.0], history=[1.0, 0.0]) for number in range(3)]
    many = few * int(PRIOR_STEPS * 10)
    assert abs(fit_factors(few)["words"] - 1.0) < 0.1 < abs(fit_factors(many)["words"] - 1.0)
    assert fit_factors([]) == {}


def test_half_is_ranked_with_factors_of_the_other_half() -> None:
    found = [example(number, 0, words=[0.0, 1.5], history=[1.0, 0.0]) for number in range(200)]
    assert {each.ranks for each in rank_called(found, {})} == {(2,)}
    assert rank_crossed(found) == [StepRanks((1,))] * 200
    assert rank_crossed(found[:1]) == [StepRanks((2,))]


def test_examples_are_the_steps_with_the_parts_of_every_tool() -> None:
    learned = LearnedModels({"dtdr": Counted({"": {"web__search": 1}, "web__search": {"web__fetch": 1}})})
    pipeline = Pipeline(Corpus(catalog()), None, learned)
    found = list(steps_with_parts(pipeline, [Episode((SEARCH, FETCH), ("a page",))], UPSTREAM_OF))
    assert [(each.episode, sorted(each.parts)) for each in found] == [(0, ["history", "lexical"])] * 2
    ids = [tool.id for tool in catalog()]
    assert [ids[each.called] for each in found] == [SEARCH, FETCH]
    assert list(steps_with_parts(Pipeline(Corpus(catalog())), [Episode((SEARCH,), ("a page",))], UPSTREAM_OF)) == []
