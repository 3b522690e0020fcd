"""What the encoder is distilled from and on which tasks, by hand."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.datasets import Task  # noqa: E402
from bench.learning.distilled_encoder import (  # noqa: E402
    BATCHES,
    Distilled,
    Invented,
    is_held_out,
    read_invented,
    together,
    with_invented,
    with_short_ones,
)
from bench.learning.invented_apis import part_of  # noqa: E402
from bench.learning.shipped_encoder import Material  # noqa: E402
from foretool.learning.training.ports_trainer import Example, TrainingBatch  # noqa: E402


def test_of_the_invented_apis_no_task_of_the_dev_half_is_read() -> None:
    found = read_invented()
    servers = {tool.id: tool.upstream for tool in found.tools}
    # A goal is in the part of its first tool's server and may need tools of others.
    trained = {servers[tool] for task in found.trained for tool in task.gold[0]}
    held_out = {servers[tool] for task in found.held_out for tool in task.gold[0]}
    assert {part_of(server) for server in trained | held_out} == {"train"}
    assert not trained & held_out and len(held_out) > 10
    assert all(map(is_held_out, held_out)) and not any(map(is_held_out, trained))


def test_invented_wishes_come_after_the_former_tasks_and_each_server_is_a_set_of_its_own() -> None:
    invented = read_invented()
    two = [task for task in invented.trained if len(task.gold) > 1][:1]
    first = Task("rain tomorrow", (frozenset((invented.tools[0].id,)),))
    former = Material(["a", "b"], np.eye(2, 4, dtype=np.float32), np.asarray([0, 7]), [Example("former", 1)])

    class Encoder:
        def documents(self, texts: list[str]) -> object:
            return np.zeros((len(texts), 4), np.float32)

    made = with_invented(former, Invented(invented.tools, [first, *two], []), Encoder())  # type: ignore[arg-type]
    assert len(made.texts) == len(made.vectors) == len(made.sets) == 2 + len(invented.tools)
    assert made.examples[:2] == [Example("former", 1), Example("rain tomorrow", 2)]
    ids = [tool.id for tool in invented.tools]
    assert [made.examples[2].tool, *made.examples[2].also] == [
        2 + ids.index(tool) for need in two[0].gold for tool in need
    ]
    numbers = dict(zip(made.sets[2:].tolist(), (tool.upstream for tool in invented.tools), strict=True))
    assert min(numbers) == 8 and len(set(numbers.values())) == len(numbers)


def test_only_long_tasks_of_one_tool_are_cut() -> None:
    long = "please show me the weather forecast for Bergen tomorrow morning with hourly wind"
    tasks = [*(Example(long, at) for at in range(40)), Example(long, 1, (2,)), Example("rain in Bergen", 3)]
    made = with_short_ones(tasks)
    assert [each.tool for each in made] == [each.tool for each in tasks]
    assert made[40:] == tasks[40:]
    assert 0 < sum(each.query != long for each in made[:40]) < 30


def test_teachers_speak_on_one_scale() -> None:
    tasks = np.asarray([[1.0, 0.0]], np.float32)
    loud = (tasks, np.asarray([[100.0, 0.0], [0.0, 0.0], [-100.0, 0.0]], np.float32), 0.75)
    quiet = (tasks, np.asarray([[-0.1, 0.0], [0.0, 0.0], [0.1, 0.0]], np.float32), 0.25)
    both = together([loud, quiet], [0])
    assert both.shape == (1, 3)
    assert np.allclose(both, together([loud], [0]), atol=1e-4), "the louder one decides by its weight, not its scale"
    assert np.allclose(together([(*loud[:2], 0.25), (*quiet[:2], 0.75)], [0]), -both, atol=1e-4)


def test_a_student_that_agrees_with_its_teachers_only_has_the_contrastive_loss() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'foretool[train]'")
    trainer = Distilled.__new__(Distilled)
    trainer._torch, trainer.examples = torch, [Example("a", 0)]
    trainer.sets, trainer._vectors = np.asarray([0, 1, 2]), np.eye(3, dtype=np.float32)
    trainer.plan = BATCHES
    trainer.teachers = [(np.eye(1, 3, dtype=np.float32), np.eye(3, dtype=np.float32), 1.0)]
    trainer.deviation, trainer.without_tasks = 0.1, np.zeros(3, np.bool_)
    same = torch.from_numpy(together(trainer.teachers, [0]).astype(np.float32)) * 0.1
    batch = TrainingBatch([0], [[0]])
    alike, unlike = (float(trainer._loss(each, batch)) for each in (same, same.flip(1)))
    assert 0 <= alike < 0.1 < unlike


def test_a_tool_that_no_task_can_need_is_no_negative() -> None:
    trainer = Distilled.__new__(Distilled)
    trainer._vectors, trainer.sets = np.eye(4, dtype=np.float32), np.asarray([0, 0, 1, 2])
    trainer.without_tasks = np.asarray([False, False, False, True])
    assert trainer._alike([0]).tolist() == [False, False, False, True]
