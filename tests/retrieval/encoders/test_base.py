"""Vectors have length 1, and those of a text with wordings are made of several."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from foretool.retrieval.document import IN_ENGLISH, READING  # noqa: E402
from foretool.retrieval.encoders.base import WORDED, WORDED_LENGTH, embed_readings, unit  # noqa: E402


def test_a_row_of_zeros_stays() -> None:
    assert unit([[3.0, 4.0], [0.0, 0.0]]).tolist() == [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]


def test_the_wordings_of_a_text_count_together_by_hand() -> None:
    known = {"text": [1.0, 0.0], "one": [0.0, 1.0], "two": [0.6, 0.8]}
    asked: list[list[str]] = []

    def embed(texts):
        asked.append(texts)
        return np.asarray([known[text] for text in texts], np.float32)

    found = embed_readings(["one", READING.join(("text", "one", "two")), "text"], embed)
    assert asked == [["one", "text", "one", "two", "text"]], "all at once"
    # The mean of (0, 1) and (.6, .8) is (.3, .9), of length .9487.
    worded = np.asarray([1 - WORDED + WORDED * 0.3 / 0.94868, WORDED * 0.9 / 0.94868])
    worded *= WORDED_LENGTH / np.linalg.norm(worded)
    np.testing.assert_allclose(found, [[0.0, 1.0], worded, [1.0, 0.0]], atol=1e-5)


def test_wordings_that_say_the_same_as_the_text_bring_it_nothing() -> None:
    found = embed_readings([READING.join(["text"] * 4)], lambda texts: np.asarray([[0.6, 0.8]] * len(texts)))
    np.testing.assert_allclose(found, [[0.6 * WORDED_LENGTH, 0.8 * WORDED_LENGTH]], atol=1e-6)
    assert embed_readings([], lambda texts: np.empty((0, 0), np.float32)).shape == (0, 0)


def test_an_encoder_that_reads_english_alone_takes_the_english_of_a_text() -> None:
    asked: list[list[str]] = []

    def embed(texts):
        asked.append(texts)
        return np.asarray([[0.6, 0.8]] * len(texts), np.float32)

    texts = [f"天气{IN_ENGLISH}weather", READING.join((f"天气{IN_ENGLISH}weather", "rain?")), "page"]
    embed_readings(texts, embed)
    embed_readings(texts, embed, english_only=True)
    assert asked == [["天气", "天气", "rain?", "page"], ["weather", "weather", "rain?", "page"]]
