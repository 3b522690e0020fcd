"""A small training of PORTS, for which torch and the weights have to be installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretool.learning.training.ports import ModelAnswers
from foretool.learning.training.ports_trainer import Example, PortsTrainer, TrainingPlan
from foretool.retrieval import encoders

SMALL: dict[str, Any] = {"batch": 3, "epochs": 3, "half": False, "rank": 4, "rate": 0.01}


def train_small(
    folder: Path,
    checkpoint: Path | None = None,
    plan: TrainingPlan = TrainingPlan(**SMALL),  # noqa: B008 (frozen)
    trainer: type[PortsTrainer] = PortsTrainer,
) -> PortsTrainer:
    """A trainer of four tools; skips the test where it cannot be built."""
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    weights = encoders.MANIFEST[0]
    if encoders.locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    texts = ["dice. Rolls dice.", "news. Reads the news.", "maps. Shows the way.", "mail. Sends a letter."]
    examples = [
        Example(query, at)
        for at, words in enumerate(("roll throw gamble d20", "headlines journal today", "route road", "post write"))
        for query in words.split()
    ]
    answers = ModelAnswers(
        {(at, each): -1.0 if each == one.tool else -6.0 for at, one in enumerate(examples) for each in range(4)}
    )
    return trainer(weights, texts, examples, plan, folder, checkpoint, answers.useful)
