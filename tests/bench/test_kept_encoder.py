"""No text is embedded twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.kept_encoder import KeptEncoder, joined_queries
from foretool.retrieval.model_format import Floats
from foretool.storage.opening import open_store


class Lengths:
    """Embeds a text as its length, and notes what it is asked."""

    name = "lengths"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def documents(self, texts: Sequence[str]) -> Floats:
        self.asked.append(list(texts))
        return np.asarray([[len(text)] for text in texts], np.float32)

    def queries(self, texts: Sequence[str]) -> Floats:
        return -self.documents(texts)


def test_documents_and_queries_are_kept_under_their_own_keys() -> None:
    with open_store(":memory:") as store:
        encoder, vectors = Lengths(), store.vectors
        kept = KeptEncoder(encoder, vectors, "documents", "queries")
        assert kept.documents(["ccc", "a", "ccc"]).tolist() == [[3], [1], [3]]
        assert kept.queries(["a"]).tolist() == [[-1]]
        again = KeptEncoder(encoder, vectors, "documents", "queries")
        assert again.documents(["a", "bb"]).tolist() == [[1], [2]]
        assert again.queries(["a"]).tolist() == [[-1]]
    # Short texts first, and each only once.
    assert encoder.asked == [["a", "ccc"], ["a"], ["bb"]]


def test_without_a_key_queries_are_embedded_each_time() -> None:
    with open_store(":memory:") as store:
        encoder = Lengths()
        kept = KeptEncoder(encoder, store.vectors, "documents")
        kept.queries(["a"])
        kept.queries(["a"])
    assert encoder.asked == [["a"], ["a"]]


def test_queries_by_several_encoders_stand_side_by_side() -> None:
    both = joined_queries([Lengths(), Lengths()])
    assert both is not None and both(["aa"]).tolist() == [[-2, -2]]
    assert joined_queries([]) is None
