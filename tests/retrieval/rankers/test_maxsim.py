"""Late interaction over token states."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from foretool.retrieval.rankers.maxsim import MaxSim, similarity  # noqa: E402

DIRECTIONS = {"open": (1.0, 0.0), "issue": (0.0, 1.0), "report": (0.6, 0.8)}


class Words:
    """The state of a word is its direction."""

    name = "words"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def states(self, texts: Sequence[str], limit: int) -> list[np.ndarray]:
        self.asked += texts
        rows = [[DIRECTIONS[word] for word in text.split()[:limit]] for text in texts]
        return [np.array(each, np.float32).reshape(len(each), 2) for each in rows]


def test_each_word_of_the_query_counts_with_its_nearest_word() -> None:
    # By hand: "open issue" against "report": (max(.6) + max(.8)) / 2; against "open": (1 + 0) / 2.
    scores = MaxSim(Words()).scores("open issue", ["report", "open", "issue open"])
    assert scores == pytest.approx([0.7, 0.5, 1.0], abs=1e-3)


def test_no_words_score_nothing() -> None:
    assert MaxSim(Words()).scores("open", ["", "open"]) == [0.0, 1.0]
    assert MaxSim(Words()).scores("", ["open"]) == [0.0]
    assert similarity(np.zeros((0, 2), np.float32), np.ones((1, 2), np.float32)) == 0.0
    assert MaxSim(Words()).scores("open", []) == []


def test_the_states_of_a_tool_are_made_once_and_the_oldest_are_forgotten() -> None:
    words = Words()
    ranker = MaxSim(words, kept=2)
    ranker.scores("open", ["issue", "report", "issue"])
    ranker.scores("open", ["issue", "open"])
    ranker.scores("open", ["report"])
    assert words.asked == ["open", "issue", "report", "open", "open", "open", "report"]
