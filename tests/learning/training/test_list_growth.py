"""How lists grow is fitted on later tasks that are played again, within what lists took at first."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

# ruff: noqa: E402

from learned_fakes import START, Counted
from requirements import requirement
from tools import catalog

from foretool.learning.training.list_growth import (
    MARGIN,
    MOST_PRICE,
    PRIOR,
    RIDGE,
    SPENT,
    Gain,
    ListCost,
    Segment,
    allowance,
    fit_growth,
    fit_logistic,
    fit_weights,
    halves,
    play,
)
from foretool.retrieval.chances import Growth
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.server.lists.order import FixedRule, LearnedRule
from foretool.storage.records import Episode, ToolId

SEARCH, FETCH, USER = ToolId("web__search"), ToolId("web__fetch"), ToolId("users__getUser")
UPSTREAM_OF = {tool.id: tool.upstream for tool in catalog()}
COUNTS = {START: {SEARCH: 1}, SEARCH: {FETCH: 9, USER: 1}, FETCH: {"END": 1}}
TASK = Episode((SEARCH, FETCH), ("find pages on the web",))
GENEROUS = LearnedRule(Growth((0,) * 7 + (20.0,), price=1e6))
"""Everything that was found is listed."""
STINGY = LearnedRule(Growth((0,) * 7 + (-20.0,), price=1.0))


def tokens(tool: ToolId) -> int:
    return 100


def segment(
    *episodes: Episode, prompted: bool = False, order: tuple[ToolId, ...] = (), learned: bool = True
) -> Segment:
    experience = LearnedModels({"dtdr": Counted(COUNTS)}) if learned else None
    asked = frozenset(each.tasks[0] for each in episodes if each.tasks) if prompted else frozenset()
    return Segment(
        Pipeline(Corpus(catalog())), experience, episodes, UPSTREAM_OF, usage={}, order=order, prompted=asked
    )  # fmt: skip


def test_a_task_is_played_as_a_client_would_do_it() -> None:
    # Nothing is listed: the first call is hidden and discovered, by which the answer names the second as well.
    assert play([segment(TASK)], STINGY, tokens, 1000, 0) == [ListCost(2, 2, 1, 0)]
    # The prediction after the first call is worth its tokens: the second is listed by then.
    next_only = LearnedRule(Growth(STINGY.growth.weights, price=200.0))
    assert play([segment(TASK)], next_only, tokens, 1000, 0) == [ListCost(2, 1, 1, 100)]
    # With a prompt all that is found for it is listed before the first call.
    (told,) = play([segment(TASK, prompted=True)], GENEROUS, tokens, 1000, 0)
    assert (told.hidden, told.discoveries) == (0, 0)
    assert told.tokens >= 200


def test_a_list_begins_with_what_is_used_and_never_exceeds_its_budget() -> None:
    begun = segment(TASK, order=(FETCH, SEARCH, USER))
    assert play([begun], STINGY, tokens, 1000, 250) == [ListCost(2, 0, 0, 200)]
    assert play([begun], GENEROUS, tokens, 200, 100)[0].tokens == 200


def test_tasks_without_words_and_tools_that_are_gone_are_left_out() -> None:
    gone = Episode((ToolId("web__gone"), SEARCH), ("find pages",))
    held = segment(Episode((SEARCH,)), Episode((SEARCH,), (" ",)), gone)
    assert [each.calls for each in play([held], STINGY, tokens, 1000, 0)] == [1]


@requirement("learn:worth")
def test_few_outcomes_hardly_move_the_weights_and_many_do() -> None:
    row = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    assert fit_weights([]) == PRIOR
    # Ten tools that were needed and nothing else told of them: the bias b solves 10 (1 - s(b)) = RIDGE (b - prior).
    bias = fit_logistic(np.repeat(row, 10, 0), np.ones(10))[-1]
    assert RIDGE * (bias - PRIOR[-1]) == pytest.approx(10 / (1 + np.exp(bias)), rel=1e-3)
    assert PRIOR[-1] < bias < PRIOR[-1] + 0.1
    assert fit_logistic(np.repeat(row, 10_000, 0), np.ones(10_000))[-1] > 1.0


@requirement("learn:worth")
def test_what_is_chosen_hides_the_least_at_no_more_tokens_than_lists_took_at_first() -> None:
    tasks = [segment(*[TASK] * 6, prompted=True)]
    at_first = segment(*[TASK] * 6, prompted=True, learned=False)
    allowed = allowance(at_first, tokens, 1000)
    unlearned = play([at_first], FixedRule(most_found=None), tokens, 1000, 0)
    assert allowed == pytest.approx(SPENT * sum(each.tokens for each in unlearned) / 6)
    assert allowance(segment(), tokens, 1000) == 0.0
    # A first list that was filled took these tokens too, whether or not anybody called what it held.
    filled = segment(*[TASK] * 6, prompted=True, learned=False, order=(USER,))
    assert allowance(filled, tokens, 1000, 100) == pytest.approx(allowed + SPENT * 100)
    growth = fit_growth(tasks, tokens, budget=1000, own=300, allowed=allowed)
    assert growth is not None
    told = play(tasks, LearnedRule(growth), tokens, 1000, growth.base)
    assert sum(each.tokens for each in told) / 6 <= allowed
    assert growth.price <= MOST_PRICE
    assert fit_growth(tasks, tokens, budget=1000, own=300, allowed=-1.0) is None


def test_every_second_task_is_one_half() -> None:
    other = Episode((USER,), ("read an account",))
    (first, second), turned = halves([segment(TASK, other, TASK)])
    assert [each.episodes for each in first] == [[TASK, TASK]]
    assert [each.episodes for each in second] == [[other]]
    assert turned == (second, first)
    assert (first[0].has_models, segment(TASK, learned=False).has_models) == (True, False)


def test_a_way_to_grow_is_better_if_it_is_cheaper_and_at_worst_dearer_by_little() -> None:
    def gain(old: list[ListCost], new: list[ListCost]) -> Gain:
        return Gain(tuple(old), tuple(new))

    dear, cheap = ListCost(2, 1, 1, 1000), ListCost(2, 0, 0, 1000)
    assert gain([dear] * 20, [cheap] * 20).difference == (-MOST_PRICE, -MOST_PRICE, -MOST_PRICE)
    assert gain([dear] * 20, [cheap] * 20).is_better
    assert not gain([cheap] * 20, [dear] * 20).is_better
    assert not gain([dear] * 20, [dear] * 20).is_better
    assert gain([dear] * 20, [cheap] * 20).is_sure
    # Four discoveries spared and three added in twenty tasks say nothing.
    mixed = gain([dear] * 4 + [cheap] * 16, [cheap] * 17 + [dear] * 3)
    assert mixed.difference[1] < 0.0 < MARGIN < mixed.difference[2]
    assert not mixed.is_better
    assert mixed.report()["old"] == {"hidden": 0.1, "discoveries": 0.2, "tokens": 1000.0}
