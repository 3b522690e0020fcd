"""Learning reads a text once by each encoder, and keeps what it read."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import HashEncoder

from foretool.retrieval.encoders import Weights
from foretool.server.learning.encoded_texts import EncodedTexts
from foretool.storage.opening import open_store


def test_methods_get_the_vectors_of_all_encoders_each_text_read_once() -> None:
    encoders = [HashEncoder("one", dimension=8), HashEncoder("other", dimension=4)]
    weights = [Weights(each.name, each.name, "MIT", kind="sentence-transformers") for each in encoders]
    with open_store(":memory:") as store:
        texts = EncodedTexts(weights, encoders, store)
        for _ in range(2):
            both = texts.queries(["book a train", "read mail"])
            first = EncodedTexts(weights[:1], encoders[:1], store)
            assert np.array_equal(both[:, :8], first.queries(["book a train", "read mail"]))
            assert np.linalg.norm(both[:, 8:], axis=1) == pytest.approx([1.0, 1.0])
        assert [sorted(each.asked) for each in encoders] == [["book a train", "read mail"]] * 2
