"""The equations of the MassTool paper, each on a case worked out by hand; torch only where it trains."""

from __future__ import annotations

from importlib.util import find_spec
from math import exp, log, sqrt

import numpy as np
import pytest
from requirements import requirement

from bench.papers.published.masstool import (
    Published,
    Settings,
    TrainingSet,
    Transfer,
    Variant,
    attend,
    attention,
    concatenation,
    contrastive_loss,
    detection_loss,
    filter_of,
    fuse,
    gate,
    knowledge,
    links,
    match,
    nearest,
    propagate,
    retrieval_loss,
    train,
    transferred,
    unit,
)

QUERIES = np.asarray([[1.0, 0.0], [0.0, 1.0]], np.float32)
TOOLS = np.asarray([[1.0, 1.0], [2.0, 0.0], [0.0, 4.0]], np.float32)
LINKED = ((0, 0), (0, 1), (1, 1))
"""Query 0 takes tools 0 and 1, query 1 takes tool 1; nobody takes tool 2."""


@requirement("masstool:graph")
def test_a_link_weighs_by_the_degrees_of_both_ends() -> None:
    # |N_q| is 2 and 1, |N_t| is 1, 2 and 0.
    assert links(LINKED, (2, 3)) == pytest.approx(
        np.asarray([[1 / sqrt(2), 1 / sqrt(4), 0.0], [0.0, 1 / sqrt(2), 0.0]], np.float32)
    )


@requirement("masstool:graph")
def test_one_round_adds_the_neighbours_and_two_add_theirs() -> None:
    linked = links(LINKED, (2, 3))
    queries, tools = propagate(linked, QUERIES, TOOLS, 1)
    one = 1 / sqrt(2)
    # The first query: (1, 0), .707 of (1, 1) and half of (2, 0); the first tool: (1, 1) and .707 of (1, 0).
    assert queries == pytest.approx(np.asarray([[1 + one + 1, one], [2 * one, 1.0]]))
    assert tools == pytest.approx(np.asarray([[1 + one, 1.0], [2.5, one], [0.0, 4.0]]))
    twice, _ = propagate(linked, QUERIES, TOOLS, 2)
    first_tools = linked.T @ QUERIES
    assert twice == pytest.approx(queries + linked @ first_tools)


@requirement("masstool:search")
def test_the_dynamic_filter_leaves_neighbours_above_the_threshold() -> None:
    cosines = np.asarray([[0.2, 0.9, 0.7], [0.6, 0.1, 0.3]], np.float32)
    places, kept = nearest(cosines, 2, 0.6)
    assert places.tolist() == [[1, 2], [0, 2]]
    assert kept.tolist() == [[1.0, 1.0], [0.0, 0.0]], "0.6 itself is not above"


@requirement("masstool:search")
def test_attention_weighs_the_neighbours_that_are_left() -> None:
    queries = np.asarray([[1.0, 2.0], [1.0, 0.0]])
    weight = np.asarray([[1.0, 0.0], [0.0, 0.5]])
    found = np.asarray([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]], [[5.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    kept = np.asarray([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    # e_q W = (1, 1): logits 1 and 2; the third is filtered, and the second query has nobody.
    first = exp(1) / (exp(1) + exp(2))
    assert attend(np, queries, weight, found, kept) == pytest.approx(np.asarray([[first, 2 * (1 - first)], [0.0, 0.0]]))


@requirement("masstool:transfer")
def test_detective_knowledge_gates_the_search_element_by_element() -> None:
    detective = knowledge(np, np.asarray([[1.0, -1.0]]), np.asarray([[1.0, 0.0], [0.0, 3.0]]), np.asarray([0.5, 1.0]))
    assert detective.tolist() == [[1.5, 0.0]], "ReLU"
    found = gate(
        np, detective, np.asarray([[2.0, 0.0], [7.0, 7.0]]), np.asarray([-3.0, log(3)]), np.asarray([[4.0, 8.0]])
    )
    assert found == pytest.approx(np.asarray([[0.5 * 4.0, 0.75 * 8.0]]))


@requirement("masstool:transfer")
def test_the_score_is_three_unit_vectors_against_one() -> None:
    found = match(
        np,
        graph=np.asarray([[3.0, 4.0]]),
        search=np.asarray([[0.0, 2.0]]),
        joint=np.asarray([[0.0, 0.0]]),
        tools=np.asarray([[0.0, 5.0], [6.0, 0.0]]),
    )
    assert found == pytest.approx(np.asarray([[0.8 + 1.0, 0.6]]))
    assert unit(np, np.zeros((1, 2))).tolist() == [[0.0, 0.0]]


@requirement("masstool:losses")
def test_retrieval_loss_by_hand() -> None:
    # exp: 2, 1, 1 -> .5, .25, .25; golden: the first and the second, so p = .5, .5, 0.
    scores, golds = np.asarray([[log(2), 0.0, 0.0]]), np.asarray([[1.0, 1.0, 0.0]])
    expected = -(0.5 * log(0.5) + 0.5 * log(0.5) + 0.5 * log(0.25) + 0.5 * log(0.75) + 1.0 * log(0.75))
    assert retrieval_loss(np, scores, golds) == pytest.approx(expected)
    assert retrieval_loss(np, scores + 700.0, golds) == pytest.approx(expected), "no overflow"


@requirement("masstool:losses")
def test_detection_loss_by_hand() -> None:
    found = detection_loss(np, np.asarray([0.8, 0.4]), np.asarray([1.0, 0.0]))
    assert found == pytest.approx(-(log(0.8) + log(0.6)) / 2)


@requirement("masstool:losses")
def test_contrastive_loss_by_hand() -> None:
    ones, others = np.asarray([[1.0, 0.0], [0.0, 1.0]]), np.asarray([[2.0, 0.0], [1.0, 1.0]])
    # Both sides at length 1: cosines [[1, .707], [0, .707]], temperature .5: logits [[2, 1.414], [0, 1.414]].
    low = sqrt(2)
    each = -log(exp(2) / (exp(2) + exp(low))), -log(exp(low) / (exp(0) + exp(low)))
    assert contrastive_loss(np, ones, others, 0.5) == pytest.approx(sum(each) / 2)
    assert contrastive_loss(np, 7 * ones, others, 0.5) == pytest.approx(sum(each) / 2), "lengths do not matter"


@requirement("masstool:graph", "masstool:search", "masstool:transfer")
def test_a_new_query_is_scored_through_all_of_it() -> None:
    eye = np.eye(2, dtype=np.float32)
    zero = np.zeros(2, np.float32)
    weights = {
        "attention": eye, "hidden": eye, "hidden_bias": zero, "gate": 0 * eye, "gate_bias": zero,
        "answer": np.asarray([[1.0], [0.0]], np.float32), "answer_bias": np.asarray([-1.0], np.float32),
    }  # fmt: skip
    model = Published(Settings(neighbours=2, threshold=0.5), QUERIES, 2 * TOOLS[:2], TOOLS, weights)
    asked = np.asarray([[0.6, 0.8]], np.float32)
    # Both pool queries are near (.6, .8). Graph: (1.2, 1.6). Logits against (2, 2) and (4, 0): 5.6 and 4.8.
    share = exp(5.6) / (exp(5.6) + exp(4.8))
    search = np.asarray([2 * share + 4 * (1 - share), 2 * share])
    expected = (asked[0] + 2 * search / np.linalg.norm(search)) @ unit(np, TOOLS).T
    assert model(asked)[0] == pytest.approx(expected, rel=1e-4)
    assert model.needs_tool(asked) == pytest.approx([1 / (1 + exp(0.4))])


@requirement("masstool:search", "masstool:transfer")
@pytest.mark.parametrize(
    ("without", "search", "joint"),
    [
        ((), [4.0, 8.0], [2.0, 6.0]),
        (("AdaKT",), [4.0, 8.0], [0.0, 0.0]),
        (("SUIM",), [0.0, 0.0], [0.5, 1.5]),
    ],
)
def test_a_part_that_is_left_out_adds_nothing(
    without: tuple[Variant, ...], search: list[float], joint: list[float]
) -> None:
    # The gate is .5 and .75; without SUIM it opens the graph's vector (1, 2).
    held = {"gate": np.zeros((2, 2)), "gate_bias": np.asarray([0.0, log(3)])}
    given = np.asarray([[1.0, 2.0]]), np.asarray([[4.0, 8.0]]), np.asarray([[1.0, 1.0]])
    found = fuse(np, Settings(without=without), held, *given)
    assert [each[0].tolist() for each in found] == [search, pytest.approx(joint)]


HALF = np.asarray([[0.5, 0.0], [0.0, 0.5]])


@requirement("masstool:search")
def test_transfer_by_attention_adds_up_what_both_vectors_become() -> None:
    # Asks and keys are the vectors themselves, values half of them: h = (1, 0), e = (0, 2).
    held = {"asks": np.eye(2), "keys": np.eye(2), "values": HALF}
    joint = attention(np, np.asarray([[1.0, 0.0]]), np.asarray([[0.0, 2.0]]), held)
    # h asks with logits 1 / sqrt 2 and 0, e with 0 and 4 / sqrt 2; the softmax is over h and e.
    of_h, of_e = 1 / (1 + exp(-1 / sqrt(2))), 1 / (1 + exp(4 / sqrt(2)))
    assert joint[0].tolist() == pytest.approx([0.5 * (of_h + of_e), 1.0 * (2 - of_h - of_e)])


@requirement("masstool:search")
def test_transfer_by_concatenation_is_a_perceptron_over_both_vectors() -> None:
    held = {
        "mix_knowledge": np.asarray([[1.0, -1.0], [0.0, 0.0]]), "mix_search": np.asarray([[0.0, 0.0], [1.0, 1.0]]),
        "mix_bias": np.asarray([0.5, -2.0]), "joint": np.asarray([[2.0, 0.0], [1.0, 1.0]]),
        "joint_bias": np.asarray([0.0, 0.25]),
    }  # fmt: skip
    # Hidden: 1 + 2 + .5 = 3.5, and -1 + 2 - 2 = -1, which ReLU makes 0.
    joint = concatenation(np, np.asarray([[1.0, 0.0]]), np.asarray([[0.0, 2.0]]), held)
    assert joint[0].tolist() == [7.0, 0.25]


@requirement("masstool:search")
def test_transfer_by_addition_has_nothing_to_learn() -> None:
    joint = transferred(np, "addition", {}, np.asarray([[1.0, 0.0]]), np.asarray([[0.0, 2.0]]))
    assert joint[0].tolist() == [1.0, 2.0]


@requirement("masstool:search")
def test_without_the_filter_every_neighbour_is_kept() -> None:
    every = filter_of(Settings(without=("DF",)))
    assert nearest(np.asarray([[-0.9, 0.2]], np.float32), 2, every)[1].tolist() == [[1, 1]]
    assert filter_of(Settings()) == Settings().threshold


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@requirement("masstool:losses")
def test_detection_learns_from_the_vectors_that_a_new_query_has() -> None:
    """A query that was trained on has moved away from its encoder's vector; detection must not learn from that."""
    draw = np.random.default_rng(3)
    needing, without = (unit(np, draw.normal(size=(60, 8)) + shift).astype(np.float32) for shift in (1.0, -1.0))
    tools = unit(np, draw.normal(size=(4, 8))).astype(np.float32)
    task = TrainingSet(needing[:40], tools, tuple((at % 4,) for at in range(40)), without[:40])
    found = train(task, Settings(neighbours=2, negatives=2, batch=40, epochs=150, hidden=8, rate=1e-2, detection=1.0))
    right = np.concatenate([found.needs_tool(needing[40:]) > 0.5, found.needs_tool(without[40:]) < 0.5])
    assert right.mean() > 0.9


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@requirement("masstool:losses")
@pytest.mark.parametrize("transfer", ["gating", "attention", "concatenation", "addition"])
def test_training_lowers_the_loss_and_finds_the_tools(transfer: Transfer) -> None:
    draw = np.random.default_rng(3)
    centres = unit(np, draw.normal(size=(4, 8)))
    kinds = np.arange(40) % 4
    queries = unit(np, centres[kinds] + 0.1 * draw.normal(size=(40, 8))).astype(np.float32)
    tools = unit(np, draw.normal(size=(8, 8))).astype(np.float32)
    golds = tuple((int(kind), int(kind) + 4) for kind in kinds)
    others = unit(np, draw.normal(size=(20, 8))).astype(np.float32)
    losses: list[float] = []
    settings = Settings(
        neighbours=5, negatives=3, batch=20, epochs=30, rate=1e-2, threshold=0.3, hidden=8, transfer=transfer
    )
    model = train(TrainingSet(queries, tools, golds, others), settings, lambda epoch, loss: losses.append(loss))
    assert losses[-1] < losses[0] - 0.1, "two golden tools of five: it cannot be below 1.39"
    fresh = unit(np, centres + 0.1 * draw.normal(size=(4, 8))).astype(np.float32)
    best = np.argsort(-model(fresh), axis=1)[:, :2]
    assert [sorted(row) for row in best.tolist()] == [[kind, kind + 4] for kind in range(4)]
