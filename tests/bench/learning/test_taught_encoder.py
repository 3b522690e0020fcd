"""What a step of the training on both sides reads, and what its loss is, by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.learning.taught_encoder import CONTRAST, READ, RIGHT, Taught  # noqa: E402
from bench.learning.web_searches import FRAMES, TOPICS, web_searches  # noqa: E402
from foretool.learning.training.ports_trainer import Example, TrainingBatch  # noqa: E402


def trainer(documents: int, tasks: int) -> Any:
    found = Taught.__new__(Taught)
    found.examples = [Example("a", at % documents) for at in range(tasks)]
    found._draw = random.Random(1)
    said = np.random.default_rng(3).standard_normal((tasks, documents)).astype(np.float32)
    found.teachers = [(said, np.eye(documents, dtype=np.float32), 1.0)]
    return found


def test_a_step_reads_right_documents_and_those_that_stand_first_for_student_and_teacher() -> None:
    few = trainer(200, 4)
    batch = TrainingBatch([0, 1, 2, 3], [[at, 100 + at, 104 + at] for at in range(4)])
    chosen = few._choose(batch)
    assert {0, 1, 2, 3} <= set(chosen) and len(set(chosen)) == len(chosen)
    assert all(set(row) & set(chosen) for row in ([100, 104], [101, 105], [102, 106], [103, 107]))
    many = trainer(400, 200)
    read = many._choose(TrainingBatch(list(range(200)), [[at, 200 + at % 200] for at in range(200)]))
    assert len(read) == READ and sum(at < 200 for at in read[:RIGHT]) == RIGHT


def test_a_student_that_agrees_with_its_teachers_only_has_the_contrastive_loss() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'foretool[train]'")
    found = trainer(3, 1)
    found._torch, found._vectors = torch, np.eye(3, dtype=np.float32)
    found.sets, found.without_tasks = np.asarray([0, 1, 2]), np.zeros(3, np.bool_)
    found.first = np.eye(3, dtype=np.float32)
    found.plan = type("Plan", (), {"temperature": 0.05})()
    cosines = np.asarray([[0.6, 0.1, -0.2]], np.float32)
    found.teachers = [(cosines, np.eye(3, dtype=np.float32), 1.0)]
    found.deviation, found.deviation_of_documents = float(cosines.std()), 1.0
    # The document that is read is as near to each other one as the teacher says: not at all.
    found.of_documents = [(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32), 1.0)]
    found._fresh = [0], torch.eye(3)[:1]
    loss = found._loss(torch.from_numpy(cosines), TrainingBatch([0], [[0, 1]]))
    expected = np.logaddexp(0.6 / 0.05, np.logaddexp(0.1 / 0.05, -0.2 / 0.05)) - 0.6 / 0.05
    assert abs(float(loss) - CONTRAST * expected) < 1e-3


def test_a_document_of_a_server_that_takes_no_part_is_no_negative() -> None:
    found = trainer(3, 1)
    found.sets, found.first = np.asarray([0, 1, 2]), np.eye(3, dtype=np.float32)
    found.without_tasks = np.asarray([False, True, False])
    assert found._alike([0]).tolist() == [False, True, False]


def test_searches_of_the_web_are_different_and_name_a_topic() -> None:
    found = web_searches(200)
    assert len(set(found)) == 200
    assert all(any(topic.lower() in said.lower() for topic in TOPICS) for said in found)
    assert all("{}" in frame for frame in FRAMES)
