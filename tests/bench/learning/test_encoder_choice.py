"""How a mix of encoders and its weight are chosen, by hand."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.datasets import Task, tool_of  # noqa: E402
from bench.learning.encoder_choice import AT, Recalls, choose, measure, read_adapter, read_mix, row_of  # noqa: E402
from bench.learning.shipped_encoder import blended, mixed  # noqa: E402
from bench.learning.wished_encoder import apart_from  # noqa: E402
from foretool.retrieval.adapters import Adapter  # noqa: E402
from foretool.retrieval.corpus import digest  # noqa: E402
from foretool.retrieval.rankers import dense  # noqa: E402


def all_at(**values: Sequence[float]) -> Recalls:
    return {name: {k: list(each) for k in AT} for name, each in values.items()}


def test_what_loses_beyond_its_error_on_any_part_is_not_chosen() -> None:
    before = all_at(one=[0.0] * 40, other=[1.0] * 40)
    calm = row_of((("a", 1.0),), 0.7, before, all_at(one=[0.1] * 40, other=[1.0] * 39 + [0.0]))
    best = row_of((("a", 1.0),), 1.0, before, all_at(one=[1.0] * 40, other=[0.5] * 40))
    small = row_of((("b", 0.5), ("a", 0.25)), 0.7, before, all_at(one=[0.05] * 40, other=[1.0] * 40))
    assert calm["lost"] == [] and calm["gains"] == pytest.approx([0.0375] * 3)
    assert best["lost"] == ["other r@1 -0.500", "other r@5 -0.500", "other r@10 -0.500"]
    assert best["sum"] > calm["sum"] > small["sum"] > 0
    assert choose([best, small, calm]) is calm and small["mix"] == "b:0.5,a:0.25"
    assert choose([best]) is None


def test_a_weight_holds_while_it_is_measured_and_no_longer() -> None:
    tools = [tool_of("s", {"name": name}) for name in ("alpha", "beta", "gamma", "delta")]
    towards = {"gamma": [1.0, 0.0], "alpha": [0.0, 1.0], "beta": [0.0, 0.9], "delta": [0.0, 0.8]}

    class Encoder:
        """To it every query is like gamma."""

        name = "minilm-tools"

        def rows(self, texts: Sequence[str]) -> dict[bytes, bytes]:
            near = {text: next(found for name, found in towards.items() if name in text) for text in texts}
            return {digest(text): np.asarray(found, np.float32).tobytes() for text, found in near.items()}

        def queries(self, texts: Sequence[str]) -> object:
            return np.asarray([[1.0, 0.0]] * len(texts), np.float32)

    task = Task("something about delta", (frozenset((tools[3].id,)),))
    served = dict(dense.TAUGHT)
    found = {weight: each["part"][1] for weight, each in measure([("part", tools, [task])], Encoder(), [0.01, 9.0])}  # type: ignore[arg-type]
    assert found == {0.01: [1.0], 9.0: [0.0]}, "the words decide, then the encoder"
    assert served == dense.TAUGHT


def test_a_mix_is_the_sum_of_its_changes() -> None:
    draw = np.random.default_rng(3)

    def adapter() -> Adapter:
        return Adapter("base", {"m": (draw.normal(size=(9, 2)), draw.normal(size=(2, 7)))})

    def change(found: Adapter) -> object:
        left, right = found.changes["m"]
        return left @ right

    one, other = adapter(), adapter()
    assert np.allclose(change(mixed([(one, 0.5), (one, 0.25)], {})), 0.75 * change(one), atol=1e-5)  # type: ignore[operator]
    # Of the sum of two the nearest matrix of rank 2 is left.
    both = 0.6 * change(one) + 0.4 * change(other)  # type: ignore[operator]
    rows, sizes, columns = np.linalg.svd(both)
    nearest = rows[:, :2] * sizes[:2] @ columns[:2]
    assert np.allclose(change(mixed([(one, 0.6), (other, 0.4)], {})), nearest, atol=1e-5)
    assert np.allclose(change(blended(one, other, 0.4)), nearest, atol=1e-5)


def test_queries_that_another_set_asks_are_no_training_parts() -> None:
    tools = [tool_of("s", {"name": "alpha"})]
    tasks = [Task(query, (frozenset((tools[0].id,)),)) for query in ("What is  new?", "what is old")]
    assert list(apart_from([("part", tools, tasks)], ["what IS new?\n"])) == [("part", tools, tasks[1:])]


def test_arguments_say_what_was_expected(tmp_path: Path) -> None:
    assert read_mix("shipped:.6,other:.4") == (("shipped", 0.6), ("other", 0.4))
    with pytest.raises(ArgumentTypeError, match="expected NAME:SHARE,NAME:SHARE, found 'shipped'"):
        read_mix("shipped")
    with pytest.raises(ArgumentTypeError, match="expected NAME=FILE, found 'shipped="):
        read_adapter(f"shipped={tmp_path / 'none'}")
