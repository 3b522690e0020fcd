"""How the share of the published loss is chosen, and what is compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bench.papers import ports_share
from bench.papers.ports_set import Recipe, World
from bench.papers.ports_share import best, compared, forms, kept_back
from foretool.learning.training.ports import Answers
from foretool.learning.training.ports_trainer import Example


def bench(examples: list[Example]) -> Any:
    world = World("toy", ("dice", "news", "maps"), (), ["a", "b"], [0, 2], {"all": range(3)})  # type: ignore[arg-type]
    return SimpleNamespace(world=world, examples=examples, called=[1, 2], head={"set": "toy"})


def test_tasks_that_are_trained_on_choose_nothing() -> None:
    examples = [Example("both", 0, (1,)), Example("both", 1, (0,)), Example("other", 1)]
    world = kept_back(bench(examples), 1)
    # The second example is the same task as the first; places among called tools become places among all.
    assert (world.queries, world.gold) == (["other"], [2])


def test_the_best_of_each_loss_is_chosen_and_of_equals_the_first() -> None:
    every = forms(200)
    assert {each.loss for each in every} == {"contrastive", "full"}
    found = [({}, each, 0.5 + (each.share == 10.0) * (each.loss == "full")) for each in every]
    assert best(found, "contrastive") == every[0]
    assert best(found, "full").share == 10.0


def test_the_losses_are_compared_over_all_seeds_on_the_same_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.asarray([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], np.float32)
    half = np.asarray([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.float32)

    def scores(bench: Any, recipe: Recipe, asked: Answers, world: World) -> Any:
        return right if recipe.loss == "full" else half

    monkeypatch.setattr(ports_share, "trained_scores", scores)
    recipes = {"full": forms(9)[-1], "contrastive": forms(9)[0]}
    *_, last = compared(cast(Any, bench([])), Answers(), recipes)
    assert last["method"] == "full over contrastive"
    assert last["r@1"] == 0.5
