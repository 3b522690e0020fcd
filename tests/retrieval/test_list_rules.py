"""Which tools a list begins with, and what it gains: a few of the best at first, then what is worth its tokens."""

from __future__ import annotations

from math import exp, log
from operator import mul

import msgspec
import pytest
from requirements import requirement

from foretool.retrieval.list_rules import (
    LEARNED_NEED,
    MOST_FOUND,
    NAMED_CALL,
    Fixed,
    Growth,
    NameCost,
    Prediction,
    Prior,
    coverage,
    fill_names,
    gains,
    growth_features,
    loads,
    make_prior,
    needs,
    order_tools,
    split_list,
    turn_costs,
)
from foretool.retrieval.ranking import Ranked
from foretool.storage.records import ToolId, Usage

A, B, C, D = (ToolId(f"s__{name}") for name in "abcd")
SIZES = {A: 100, B: 10, C: 40, D: 40}
RANKED = (
    Ranked(A, 10.0, {"lexical": 1.5, "tasks": 8.0, "usage": 0.5}),
    Ranked(B, 5.0, {"lexical": 4.0, "history": 1.0}),
    Ranked(C, 1.0, {"lexical": 1.0}),
)
COSTS = {A: 100, B: 30, C: 100}
TOKENS = COSTS.__getitem__
BY_PLACE = Growth((-1.0, 0, 0, 0, 0, 0, 0, 0.0), price=200.0)
"""The log-odds of a tool are minus the logarithm of its rank: 1/2, 1/3, 1/4."""


def test_what_is_said_of_a_tool_is_its_place_its_score_and_where_that_comes_from() -> None:
    # The best score is 10, so a fifth of it is 2: 5 points behind are 2.5 of them, 8 points of past tasks are 4.
    assert growth_features(RANKED)[:2] == [
        (0.0, 0.0, log(11.0), 2.0, 4.0, 0.0, 0.0, 1.0),
        (log(2), -2.5, log(11.0), 4.0, 0.0, 1.0, 0.0, 1.0),
    ]
    # A best score under 3 is read as 3.
    assert growth_features([Ranked(A, 0.6, {"tasks": 0.6})]) == [(0.0, 0.0, log(1.6), 0.0, 1.0, 0.0, 0.0, 1.0)]
    assert growth_features(()) == []


@requirement("learn:worth")
def test_a_tool_is_listed_if_its_probability_times_the_price_reaches_its_tokens() -> None:
    assert BY_PLACE.chances(RANKED) == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    # 1/2 x 200 reaches 100, 1/3 x 200 reaches 30, 1/4 x 200 does not reach 100.
    assert BY_PLACE.for_prompt(RANKED, False, TOKENS) == [A, B]
    assert BY_PLACE.for_discovery(RANKED, False, TOKENS) == [A, B]
    dearer = Growth(BY_PLACE.weights, price=400.0)
    assert dearer.for_prompt(RANKED, True, TOKENS) == [A, B, C]


def test_the_likeliest_come_first_whatever_their_rank() -> None:
    by_words = Growth((0, 0, 0, 1.0, 0, 0, 0, 0), price=1e6)
    assert by_words.chances(RANKED) == pytest.approx([1 / (1 + exp(-each)) for each in (2.0, 4.0, 1.0)])
    assert by_words.for_prompt(RANKED, True, TOKENS) == [B, A, C]


@requirement("learn:worth")
def test_a_prediction_brings_in_all_that_is_worth_it_once_one_is_likely_enough() -> None:
    said = Prediction({A: 0.5, B: 0.15, C: 0.1}, end=0.2)
    assert BY_PLACE.for_next(said.chances, said.goes_on, TOKENS) == [A, B]
    # Both are worth their tokens, but a client would list again for little.
    assert BY_PLACE.for_next({B: 0.1499}, True, {B: 1}.__getitem__) == []
    assert BY_PLACE.for_next({}, False, TOKENS) == []


def test_without_a_fit_a_few_of_the_best_are_listed_where_the_gate_is_sure() -> None:
    many = [Ranked(ToolId(f"s__{number}"), 1.0) for number in range(12)]
    assert Fixed().for_prompt(many, True, TOKENS) == [each.tool for each in many[:MOST_FOUND]]
    assert Fixed(most_found=None).for_discovery(many, True, TOKENS) == [each.tool for each in many]
    assert len(Fixed().for_discovery(many, True, TOKENS)) == MOST_FOUND
    assert Fixed().for_prompt(many, False, TOKENS) == Fixed().for_discovery(many, False, TOKENS) == []


def test_without_a_fit_four_likely_next_tools_are_listed_unless_the_task_is_likelier_done() -> None:
    chances = {ToolId(f"s__{number}"): 0.19 for number in range(5)} | {A: 0.1}
    assert len(Fixed().for_next(chances, Prediction(chances, end=0.1).goes_on, TOKENS)) == 4
    assert Fixed().for_next(chances, Prediction(chances, end=0.2).goes_on, TOKENS) == []
    assert not Prediction({}, end=0.0).goes_on


def test_it_is_kept_as_it_is_and_of_other_features_it_is_refused() -> None:
    growth = Growth(BY_PLACE.weights, 1234.5, 200, {"dtdr": 2}, "e")
    assert loads(msgspec.json.encode(growth)) == growth
    with pytest.raises(msgspec.ValidationError, match="1 weights for 8 features"):
        loads(b'{"weights":[1.0],"price":1.0}')


# The order


def test_needs_are_shares_of_calls_and_later_tasks_count_more() -> None:
    # Two tasks, half-life one task: the older one weighs 1/2; A has 1/2 + 1, B has 1/2.
    assert needs([(A, B), (A,)], half_life=1.0) == {A: pytest.approx(0.75), B: pytest.approx(0.25)}
    assert needs([], 1.0) == {}


def test_a_size_penalty_prefers_what_is_needed_per_token() -> None:
    prior = Prior({A: 0.6, B: 0.3, C: 0.1}, size_penalty=0.0)
    assert order_tools(prior, (), SIZES.__getitem__, 0.0, 1.0) == [A, B, C]
    penalized = Prior({A: 0.6, B: 0.3, C: 0.1}, size_penalty=1.0)
    # .6 / 100 = .006, .3 / 10 = .03, .1 / 40 = .0025.
    assert order_tools(penalized, (), SIZES.__getitem__, 0.0, 1.0) == [B, A, C]


def test_usage_since_brings_in_tools_that_learning_has_not_seen() -> None:
    prior = Prior({A: 0.2, B: 0.1}, size_penalty=0.0)
    # D alone was used: it has the whole of what usage counts for.
    assert 1.0 - LEARNED_NEED > LEARNED_NEED * 0.2
    assert order_tools(prior, [Usage(D, 3, 0, 5.0)], SIZES.__getitem__, 5.0, 1.0) == [D, A, B]
    assert order_tools(Prior(), [Usage(A, 9, 0, 5.0), Usage(B, 0, 1, 5.0)], SIZES.__getitem__, 5.0, 1.0) == [
        B,
        A,
    ]  # 3 / 10^.5 > 9 / 100^.5


def test_coverage_is_a_share_of_each_task() -> None:
    assert coverage([A, B], [(A, C), (B,), (), (C, D)]) == [0.5, 1.0, 0.0]


def test_a_prior_is_kept_as_json() -> None:
    prior = make_prior({B: 0.5, A: 0.25, C: 0.0}, 0.5)
    assert prior == Prior({A: 0.25, B: 0.5}, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(prior), type=Prior) == prior


def test_a_list_is_split_between_definitions_and_names() -> None:
    order = [ToolId(each) for each in "abcd"]
    sizes = {"a": 50, "b": 40, "c": 60, "d": 10}

    def names(tool: ToolId) -> NameCost:
        return NameCost() if tool == "c" else NameCost("", 0, 8)

    assert split_list(order, 100, 0.0, sizes.__getitem__, names) == (["a", "b", "d"], [])
    # Half is for definitions; what they leave goes to names of 8 + 2 tokens, and `c` has none.
    assert split_list(order, 100, 0.5, sizes.__getitem__, names) == (["a"], ["b", "d"])
    assert split_list(order, 15, 1.0, sizes.__getitem__, names) == ([], ["a"])


def test_names_of_one_group_pay_for_what_they_share_once() -> None:
    costs = {"a": NameCost("x", 5, 3), "b": NameCost("y", 5, 3), "c": NameCost("x", 5, 3), "d": NameCost("x", 5, 9)}
    order = [ToolId(each) for each in costs]
    # 10 tokens for the first, 5 for another one of its group; 2 of each stand between names.
    assert fill_names(order, costs.__getitem__, 15) == ["a", "c"]
    assert fill_names(order, costs.__getitem__, 25) == ["a", "b", "c"]
    assert fill_names(order, costs.__getitem__, 36) == ["a", "b", "c", "d"]


def test_a_discovery_costs_a_turn_and_a_named_call_a_part_of_one() -> None:
    a, b, c = map(ToolId, "abc")
    costs = turn_costs([a], [b], [(a, a), (a, b, b), (b, c), ()])
    assert costs == [0.0, NAMED_CALL, 1.0 + NAMED_CALL]


def test_without_learned_parts_chances_are_the_same_sums() -> None:
    weights = (-0.7, 0.31, 0.2, -0.11, 3.0, 4.0, 5.0, -1.3)
    plain = [Ranked(A, 7.3, {"lexical": 7.1, "usage": 0.2}), Ranked(B, 7.3), Ranked(C, 0.4), Ranked(D, -2.0)]
    learned = [*plain, Ranked(A, -3.0, {"tasks": 0.5})]
    for ranked in (plain, learned, []):
        sums = [sum(map(mul, weights, each)) for each in growth_features(ranked)]
        assert gains(weights, ranked) == [1.0 / (1.0 + exp(-each)) for each in sums]
