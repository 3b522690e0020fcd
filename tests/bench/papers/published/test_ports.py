"""PORTS as published: every loss trains, and tools are read again where both sides are trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ports_training import SMALL, train_small

from bench.papers.published.ports import Loss, PublishedPlan, PublishedTrainer, choose_fresh
from foretool.learning.training.ports_trainer import PortsTrainer, TrainingBatch


def train_published(
    folder: Path, checkpoint: Path | None = None, loss: Loss = "ports", sides: str = "both"
) -> PortsTrainer:
    plan = PublishedPlan(**SMALL, refresh=4, loss=loss, sides=sides)  # type: ignore[arg-type]
    return train_small(folder, checkpoint, plan, PublishedTrainer)


def test_a_step_reads_the_right_tools_anew_and_then_the_hardest_others() -> None:
    batch = TrainingBatch([0, 1, 2], [[4, 1, 2], [5, 3, 1], [4, 0]])
    assert choose_fresh(batch, 9) == [0, 1, 2, 3, 4, 5]
    assert choose_fresh(batch, 4) == [1, 3, 4, 5]
    assert choose_fresh(batch, 2) == [4, 5]


# With torch and the weights; the default test run has neither.


@pytest.mark.parametrize("loss", ["ports", "replug", "contrastive", "full"])
@pytest.mark.parametrize("sides", ["both", "query"])
def test_every_loss_falls(tmp_path: Path, loss: Loss, sides: str) -> None:
    trainer = train_published(tmp_path / "model", loss=loss, sides=sides)
    trainer.run()
    assert np.mean(trainer.losses[-4:]) < np.mean(trainer.losses[:4])


def test_a_killed_training_of_both_sides_goes_on_where_it_stood(tmp_path: Path) -> None:
    whole = train_published(tmp_path / "model", loss="full")
    whole.run()
    half = train_published(tmp_path / "model", tmp_path / "checkpoint", loss="full")
    half.run(until=5)
    half.save(tmp_path / "checkpoint")
    rest = train_published(tmp_path / "model", tmp_path / "checkpoint", loss="full")
    rest.run()
    assert rest.losses == pytest.approx(whole.losses, rel=1e-5)
