"""What the shipped encoder is trained with, by hand."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.learning.shipped_encoder import SetsApart, SeveralRight, blended, scaled, strung  # noqa: E402
from foretool.learning.training.ports_trainer import Example, TrainingBatch  # noqa: E402
from foretool.retrieval.adapters import Adapter  # noqa: E402


def test_strung_tasks_are_of_one_set_and_need_all_tools_of_their_parts() -> None:
    one = [Example(f"one {at}.", at) for at in range(20)]
    other = [Example(f"other {at}.", 20 + at, (40,)) for at in range(10)]
    found = strung([one, other])
    assert len(found) == 6 + 3
    for task, own in zip(found, [one] * 6 + [other] * 3, strict=True):
        parts = [each for each in own if each.query in task.query]
        assert 2 <= len(parts) <= 4
        assert len(task.query) == sum(len(each.query) for each in parts) + len(parts) - 1
        assert {task.tool, *task.also} == {at for each in parts for at in (each.tool, *each.also)}
    assert found == strung([one, other])


def test_scaling_scales_the_product() -> None:
    left, right = np.ones((3, 2), np.float32), np.full((2, 4), 2.0, np.float32)
    found = scaled(Adapter("base", {"w": (left, right)}, {"seed": 42}), 0.75)
    changed_left, changed_right = found.changes["w"]
    np.testing.assert_array_equal(changed_left @ changed_right, 0.75 * (left @ right))
    assert (found.base, found.report) == ("base", {"seed": 42, "scale": 0.75})


def test_no_tool_of_a_task_stands_against_another() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'foretool[train]'")
    trainer = SeveralRight.__new__(SeveralRight)
    trainer._torch, trainer.plan = torch, SimpleNamespace(temperature=0.5)  # type: ignore[assignment]
    trainer.examples = [Example("both", 0, (2,)), Example("one", 1)]
    trainer._vectors = np.zeros((3, 2), np.float32)
    cosines = torch.tensor([[0.5, 0.25, 0.0], [0.1, 0.3, 0.2]])
    loss = trainer._loss(cosines, TrainingBatch([0, 1], [[0, 1], [1, 2]]))
    # Over the temperature: 1, .5, 0 and .2, .6, .4; tool 1 alone stands against 0 and 2.
    both = (log(1 + exp(0.5 - 1.0)) + log(1 + exp(0.5 - 0.0))) / 2
    one = log(1 + exp(0.2 - 0.6) + exp(0.4 - 0.6))
    assert float(loss) == pytest.approx((both + one) / 2, abs=1e-6)


def test_a_tool_of_another_set_that_says_the_same_is_no_negative() -> None:
    trainer = SetsApart.__new__(SetsApart)
    trainer._vectors = np.asarray([[1, 0], [0.8, 0.6], [0.8, 0.6], [0, 1]], np.float32)
    trainer.sets = np.asarray([0, 0, 1, 1])
    assert trainer._alike([0]).tolist() == [False, False, True, False]


def test_a_blend_lies_between_two_changes() -> None:
    draw = np.random.default_rng(7)
    one, other = ((draw.normal(size=(9, 2)), draw.normal(size=(2, 5))) for _ in range(2))
    old, new = Adapter("base", {"w": one}), Adapter("base", {"w": other}, {"seed": 42})  # type: ignore[dict-item]
    for share, whole in ((0.0, one), (1.0, other)):
        left, right = blended(old, new, share).changes["w"]
        assert left.shape == (9, 2)
        np.testing.assert_allclose(left @ right, whole[0] @ whole[1], atol=1e-5)
    left, right = blended(old, old, 0.75).changes["w"]
    np.testing.assert_allclose(left @ right, one[0] @ one[1], atol=1e-5)
    assert blended(old, new, 0.75).report == {"seed": 42, "blend": 0.75}
