from __future__ import annotations

import numpy as np

from bench.learning.near_words import lines, words_by_stem
from foretool.retrieval.words import STOP_WORDS, stem


def test_each_stem_has_its_most_common_word() -> None:
    found = words_by_stem()
    assert len(found) > 10_000 and not STOP_WORDS & set(found.values())
    assert all(stem(word) == term for term, word in found.items())


def test_a_line_has_the_nearest_words_with_a_digit_and_leaves_out_far_ones() -> None:
    angles = np.radians([0.0, 20.0, 55.0, 90.0, 180.0, 270.0, 271.0, 200.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    names = ["a", "b", "c", "d", "e", "f", "g", "h"]
    found = dict(line.split(" ", 1) for line in lines({name: f"{name}s" for name in names}, vectors))
    assert found["a"] == "bs8", "cos 20 = .94; cos 55 = .57 is worth 1, and left out"
    assert found["f"] == "gs9" and found["b"].startswith("as8")
    assert "e" not in found["a"] and found["e"] == "hs8"
