"""What DTDR is trained on: tasks as vectors, and the catalog."""

from __future__ import annotations

import numpy as np

from foretool.retrieval.training.dtdr_material import ToolVectors, task_vectors
from foretool.storage.records import ToolId


def test_a_catalog_before_some_tools_were_installed_has_the_texts_of_the_others() -> None:
    catalog = ToolVectors([ToolId("a"), ToolId("b"), ToolId("c")], np.eye(3, dtype=np.float32))
    before = catalog.without({ToolId("b")})
    assert before.tools == [ToolId("a"), ToolId("c")]
    texts = before.texts([ToolId("c"), ToolId("b"), ToolId("a")])
    assert {place: text.tolist() for place, text in texts.items()} == {0: [0, 0, 1], 2: [1, 0, 0]}
    assert ToolVectors([ToolId("a")], None).without(()).texts([ToolId("a")]) == {}


def test_an_empty_task_has_no_direction_and_no_encoder_no_dimension() -> None:
    found = task_vectors(["a", "", "a"], lambda texts: np.full((len(texts), 4), 2.0, np.float32))
    assert found.tolist() == [[0.5] * 4, [0.0] * 4, [0.5] * 4]
    assert task_vectors(["a"], None).shape == (1, 0)
    assert task_vectors([""], lambda texts: np.ones((len(texts), 4), np.float32)).shape == (1, 0)
