"""What a coming task is likely to need, and how a budget is filled by it."""

from __future__ import annotations

import msgspec
import pytest

from foretool.retrieval.list_prior import LEARNED, Prior, coverage, make_prior, needs, order
from foretool.storage.records import ToolId, Usage

A, B, C, D = (ToolId(name) for name in "abcd")
SIZES = {A: 100, B: 10, C: 40, D: 40}


def test_needs_are_shares_of_calls_and_later_tasks_count_more() -> None:
    # Two tasks, half-life one task: the older one weighs 1/2; A has 1/2 + 1, B has 1/2.
    assert needs([(A, B), (A,)], half_life=1.0) == {A: pytest.approx(0.75), B: pytest.approx(0.25)}
    assert needs([], 1.0) == {}


def test_a_size_penalty_prefers_what_is_needed_per_token() -> None:
    prior = Prior({A: 0.6, B: 0.3, C: 0.1}, size_penalty=0.0)
    assert order(prior, (), SIZES.__getitem__, 0.0, 1.0) == [A, B, C]
    penalized = Prior({A: 0.6, B: 0.3, C: 0.1}, size_penalty=1.0)
    # .6 / 100 = .006, .3 / 10 = .03, .1 / 40 = .0025.
    assert order(penalized, (), SIZES.__getitem__, 0.0, 1.0) == [B, A, C]


def test_usage_since_brings_in_tools_that_learning_has_not_seen() -> None:
    prior = Prior({A: 0.2, B: 0.1}, size_penalty=0.0)
    # D alone was used: it has the whole of what usage counts for.
    assert 1.0 - LEARNED > LEARNED * 0.2
    assert order(prior, [Usage(D, 3, 0, 5.0)], SIZES.__getitem__, 5.0, 1.0) == [D, A, B]
    assert order(Prior(), [Usage(A, 9, 0, 5.0), Usage(B, 0, 1, 5.0)], SIZES.__getitem__, 5.0, 1.0) == [
        B,
        A,
    ]  # 3 / 10^.5 > 9 / 100^.5


def test_coverage_is_a_share_of_each_task() -> None:
    assert coverage([A, B], [(A, C), (B,), (), (C, D)]) == [0.5, 1.0, 0.0]


def test_a_prior_is_kept_as_json() -> None:
    prior = make_prior({B: 0.5, A: 0.25, C: 0.0}, 0.5)
    assert prior == Prior({A: 0.25, B: 0.5}, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(prior), type=Prior) == prior
