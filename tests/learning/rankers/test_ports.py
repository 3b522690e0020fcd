"""What a trained encoder adds to the sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from foretool.learning.rankers import ports
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.model_format import Floats, ModelError
from foretool.retrieval.rankers.dense import ALONE, TAUGHT, TOGETHER
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query
from foretool.retrieval.score_sum import z_scores
from foretool.storage.records import ToolId

TOOLS = (ToolId("open"), None, ToolId("close"))
VECTORS = np.asarray([[1, 0], [0, 0], [0, 1]], np.float32)
BASE = np.asarray([1, 0], np.float32)


class Turned:
    """Reads every text as the second direction, "open" as the first."""

    name = "turned"

    def documents(self, texts: Sequence[str]) -> Floats:
        raise AssertionError("tools keep their vectors")

    def queries(self, texts: Sequence[str]) -> Floats:
        return np.asarray([[1, 0] if text == "open" else [0.6, 0.8] for text in texts], np.float32)


def model() -> ports.Ports:
    return ports.Ports(Turned())


def test_the_new_reading_comes_in_and_the_old_one_goes_out() -> None:
    ranker = model()
    ranker.align(TOOLS, VECTORS)
    # Cosines .6 and .8 now, 1 and 0 before: a deviation below and above their mean, and the other way round.
    learned = [-ports.NEW - ALONE, 0.0, ports.NEW + ALONE]
    assert ranker.score(Query(("shut it",)), BASE).tolist() == pytest.approx(learned, rel=1e-4)
    # Read as before, what is left is what it counts more than the old one.
    same = [ports.NEW - ALONE, 0.0, ALONE - ports.NEW]
    assert ranker.score(Query(("open",)), BASE).tolist() == pytest.approx(same, rel=1e-4)


def test_a_tool_has_its_best_cosine_to_any_line() -> None:
    ranker = model()
    ranker.align(TOOLS, VECTORS)
    # 1 and .8 over both lines, so the first tool is ahead as it was.
    found = ranker.score(Query(("open", "shut it", " ")), BASE).tolist()
    assert found == pytest.approx([ports.NEW - ALONE, 0.0, ALONE - ports.NEW], rel=1e-4)


def test_in_the_sum_it_takes_the_place_of_the_old_reading() -> None:
    for encoders, weight in (("one", ALONE), ("minilm-tools", TAUGHT["minilm-tools"]), ("one+two", TOGETHER)):
        ranker = model()
        live = np.asarray([True, False, True])
        before = np.float32(weight) * z_scores(VECTORS @ BASE, live)
        parts = LearnedModels({"ports": ranker})
        parts.align(TOOLS, (encoders,), VECTORS, encoders)
        added = parts.parts(Query(("shut it",)), (BASE,))["trained"]
        assert (before + added).tolist() == pytest.approx([-ports.NEW, 0.0, ports.NEW], rel=1e-4)


def test_nothing_is_added_without_words_or_without_vectors() -> None:
    ranker = model()
    ranker.align(TOOLS, VECTORS)
    assert ranker.score(Query(()), None).tolist() == [0, 0, 0]
    assert ranker.score(Query(("open",)), None).tolist() == [0, 0, 0]
    assert ranker.score(Query(("open",)), np.ones(3, np.float32)).tolist() == [0, 0, 0]
    ranker.align(TOOLS, None)
    assert ranker.score(Query(("open",)), BASE).tolist() == [0, 0, 0]


def test_an_adapter_of_weights_that_are_not_installed_is_refused() -> None:
    with pytest.raises(ModelError, match="not installed; pip install"):
        ports.Ports.loads(Adapter("ffff", {}).dumps())
