"""Later tasks are played again with two sets of models, and better means better outside the error."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learned_fakes import Counted
from tools import catalog

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query
from foretool.retrieval.training.replay import (
    Comparison,
    StepRanks,
    compare,
    interval,
    paired_difference,
    rank_steps,
    steps,
)
from foretool.storage.records import Episode, ToolId

SEARCH, FETCH, GONE = ToolId("web__search"), ToolId("web__fetch"), ToolId("web__gone")
UPSTREAM_OF = {tool.id: tool.upstream for tool in catalog()}


def test_every_call_is_a_step_and_tools_that_are_gone_are_history() -> None:
    episode = Episode((SEARCH, GONE, FETCH), ("find it\n and read it",))
    lines = ("find it", "and read it")
    assert list(steps(episode, UPSTREAM_OF)) == [
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
    found = compare(old, new)
    assert found == Comparison(
        20, 40, {"mrr": 0.75, "top5": 1.0, "top10": 1.0}, {"mrr": 1.0, "top5": 1.0, "top10": 1.0}, (0.25, 0.25, 0.25)
    )
    assert found.is_better
    assert not compare(new, old).is_better
    assert found.report()["difference"] == [0.25, 0.25, 0.25]


def test_a_difference_within_the_error_is_not_better() -> None:
    old = [StepRanks((1,)), StepRanks((2,))] * 5
    new = [StepRanks((1,)), StepRanks((2,))] * 4 + [StepRanks((1,)), StepRanks((1,))]
    found = compare(old, new)
    assert found.difference[1] > 0.0
    assert not found.is_better
    assert found.may_follow  # one that knows more of the same log has a reason to be better beside these figures


def test_what_follows_its_like_must_be_better_in_the_mean_and_not_worse_outside_the_error() -> None:
    same = [StepRanks((1,)), StepRanks((2,))] * 10
    assert not compare(same, same).may_follow
    slightly_worse = [StepRanks((1,)), StepRanks((2,))] * 9 + [StepRanks((2,)), StepRanks((2,))]
    assert not compare(same, slightly_worse).may_follow
    # Better ranks, and tools that leave the first five.
    old, new = [StepRanks((2,)), StepRanks((5,))] * 20, [StepRanks((1,)), StepRanks((6,))] * 20
    assert compare(old, new).difference[0] > 0.0
    assert not compare(old, new).may_follow


def test_better_ranks_do_not_make_up_for_tools_that_leave_the_first_five() -> None:
    old = [StepRanks((2,)), StepRanks((5,))] * 20
    new = [StepRanks((1,)), StepRanks((6,))] * 20
    found = compare(old, new)
    assert found.difference[0] > 0.0 > found.top5[2]
    assert not found.is_better


def test_more_tools_among_the_first_five_are_better_where_ranks_are_not_worse() -> None:
    old = [StepRanks((6,)), StepRanks((1,)), StepRanks((2,))] * 20
    new = [StepRanks((5,)), StepRanks((2,)), StepRanks((1,))] * 20
    found = compare(old, new)
    assert found.difference[0] < 0.0 < found.difference[2]
    assert found.top5[0] > 0.0
    assert found.is_better


def test_without_episodes_nothing_is_better() -> None:
    assert not compare([], []).is_better
    assert rank_steps(Pipeline(Corpus(catalog())), [Episode((GONE,))], UPSTREAM_OF) == []


def test_a_rank_beyond_the_depth_is_not_found() -> None:
    assert StepRanks((0, 1, 6)).found(5) == pytest.approx(1 / 3)
    assert StepRanks((0, 1, 6)).reciprocal == pytest.approx((1 + 1 / 6) / 3)


def test_intervals_hold_the_mean_and_shrink_with_more_values() -> None:
    few, many = interval([0.0, 1.0] * 10), interval([0.0, 1.0] * 1000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert interval([0.3] * 5) == pytest.approx((0.3, 0.3))
    assert paired_difference([1.0, 0.0], [1.0, 0.0]) == (0.0, 0.0, 0.0)
