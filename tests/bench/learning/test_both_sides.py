"""What the training of both sides is made of, by hand."""

from __future__ import annotations

import random
from math import exp, log

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.learning.both_sides import (  # noqa: E402
    RECIPE,
    Wish,
    chosen_documents,
    contrast,
    divergence,
    mixed,
    shorten,
)


def test_a_short_wish_keeps_telling_words_in_their_order() -> None:
    draw = random.Random(1)
    words = "show weather forecast Bergen tomorrow morning hourly wind rain".split()  # noqa: SIM905
    query = "Please show me the weather forecast for Bergen tomorrow morning, with hourly wind and rain"
    for _ in range(20):
        kept = [word.strip(",") for word in shorten(query, draw).split()]
        assert 3 <= len(kept) <= 6
        assert kept == [word for word in words if word in kept]


def test_a_wish_of_few_words_stays_as_it_is() -> None:
    assert shorten("what is the time in Tokyo", random.Random(1)) == "what is the time in Tokyo"
    assert shorten("", random.Random(1)) == ""


def test_strung_tasks_need_all_tools_of_their_parts_and_one_set_is_read_twice() -> None:
    by_set = [
        [Wish(f"{number} {at}", (10 * number + at,), number) for at in range(10)] for number in range(len(RECIPE))
    ]
    found = mixed(by_set)
    assert len(found) == len(RECIPE) * (10 + 2) + 10
    long = [each for each in found if len(each.right) > 1]
    assert len(long) == 2 * len(RECIPE)
    for each in long:
        assert {at // 10 for at in each.right} == {each.set}
    assert sum(each.query == "1 3" for each in found) == 2
    assert found == mixed(by_set)


def test_a_step_reads_the_right_documents_and_then_the_hardest_wrong_ones() -> None:
    near = np.asarray([[-9.0, 0.9, 0.5, 0.1, 0.4, 0.0], [0.2, -9.0, 0.8, 0.7, 0.1, 0.0]], np.float32)
    assert chosen_documents(near, [(0,), (1,)], random.Random(0)) == [0, 1, 2, 3, 4]


def test_right_tools_and_those_that_may_be_right_are_no_negatives() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'foretool[train]'")
    scores = torch.tensor([[2.0, 1.0, 5.0, 0.0]])
    shut = torch.tensor([[True, False, True, False]])
    loss = contrast(scores, [(0,)], shut, torch)
    assert float(loss) == pytest.approx(log(1 + exp(1.0 - 2.0) + exp(0.0 - 2.0)), abs=1e-6)


def test_similarities_that_stayed_cost_nothing() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'foretool[train]'")
    before = torch.tensor([[0.0, log(3.0)]])
    assert float(divergence(before, before + 2.0, torch)) == pytest.approx(0.0, abs=1e-6)
    # 1/4 and 3/4 against 1/2 each
    wanted = 0.25 * log(0.5) + 0.75 * log(1.5)
    assert float(divergence(before, torch.zeros(1, 2), torch)) == pytest.approx(wanted, abs=1e-6)
