"""A second look changes the order of near ones, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.retrieval import reranking
from foretool.retrieval.encoders import EncoderError
from foretool.retrieval.ranking import Ranked, Ranking
from foretool.retrieval.reranking import described, open_reranker, reranked
from foretool.storage.records import ToolId


def ranking(*scores: float, **named: float) -> Ranking:
    ranked = [Ranked(ToolId(f"t{place}"), score, {"lexical": score}) for place, score in enumerate(scores)]
    first = [Ranked(ToolId(name), 1000.0 + score, {"name": 1000.0, "lexical": score}) for name, score in named.items()]
    return Ranking((*first, *ranked), total=9)


def order(found: Ranking) -> list[str]:
    return [str(each.tool) for each in found.ranked]


def test_the_scores_add_what_their_weight_says() -> None:
    # By hand: scores 3, 2, 1 have deviation .8165; so have -1, 1, 0, with z -1.2247, 1.2247, 0: .5 * .8165 * z = -+.5.
    found = reranked(ranking(3.0, 2.0, 1.0, 0.5), "reader", [-1.0, 1.0, 0.0], weight=0.5)
    assert [(str(each.tool), each.score) for each in found.ranked] == [
        ("t0", pytest.approx(2.5)), ("t1", pytest.approx(2.5)), ("t2", 1.0), ("t3", 0.5)
    ]  # fmt: skip
    assert found.ranked[1].parts == {"lexical": 2.0, "reader": pytest.approx(0.5)}
    assert found.total == 9


def test_near_ones_change_places_and_what_was_not_read_stays_behind() -> None:
    before = ranking(3.0, 2.9, 1.0, 0.9)
    assert order(reranked(before, "reader", [0.0, 5.0, 1.0], weight=0.3)) == ["t1", "t0", "t2", "t3"]
    assert order(reranked(before, "reader", [0.0, 0.0, 9.0], weight=0.1)) == ["t0", "t1", "t2", "t3"]


def test_a_named_tool_stays_first_and_does_not_stretch_the_scale() -> None:
    found = reranked(ranking(3.0, 2.9, asked=0.0), "reader", [-9.0, 0.0, 9.0], weight=0.3)
    assert order(found) == ["asked", "t1", "t0"]


def test_scores_that_say_nothing_change_nothing() -> None:
    before = ranking(3.0, 2.0)
    assert reranked(before, "reader", [1.0, 1.0]) is before
    assert reranked(before, "reader", []) is before
    assert reranked(Ranking(), "reader", []) == Ranking()
    assert reranked(ranking(2.0, 2.0), "reader", [1.0, 2.0]) == ranking(2.0, 2.0)
    assert order(reranked(before, "reader", [float("nan"), 1.0], weight=0.1)) == ["t0", "t1"]


def test_without_the_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranking, "missing_libraries", lambda: ["numpy"])
    with pytest.raises(EncoderError, match="'maxsim': numpy not installed; pip install"):
        open_reranker("maxsim")
    assert open_reranker("none") is None


def test_settings_that_name_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the encoders' libraries are not installed")
    monkeypatch.setattr(reranking, "missing_libraries", list)
    with pytest.raises(EncoderError, match='\'magic\': expected "none", "cross_encoder", "maxsim", a folder, or'):
        open_reranker("magic")
    monkeypatch.setattr(reranking, "locate", lambda weights: None)
    with pytest.raises(EncoderError, match="no encoder with token states is installed"):
        open_reranker("cross_encoder", tmp_path)
    with pytest.raises(EncoderError, match="no encoder with token states is installed"):
        open_reranker("maxsim", tmp_path)


def test_what_a_setting_means_is_told_without_opening_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reranking, "missing_libraries", list)
    monkeypatch.setattr(reranking, "locate", lambda weights: tmp_path)
    monkeypatch.setattr(reranking, "find_spec", lambda module: None)
    assert described("none") == ""
    assert described("cross_encoder").startswith("cross_encoder (")
    assert described("maxsim") == "maxsim over minilm"
    with pytest.raises(EncoderError, match="'some/model': pip install sentence-transformers"):
        described("some/model")
    monkeypatch.setattr(reranking, "find_spec", lambda module: module)
    assert described("some/model") == "some/model"
    monkeypatch.setattr(reranking, "locate", lambda weights: None)
    with pytest.raises(EncoderError, match="no encoder with token states is installed"):
        described("cross_encoder")


def test_maxsim_stands_in_for_a_cross_encoder_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if reranking.missing_libraries() or reranking.locate(reranking.MANIFEST[0]) is None:
        pytest.skip("no encoder is installed")
    there = reranking.locate
    monkeypatch.setattr(reranking, "locate", lambda each: None if each.name == "cross_encoder" else there(each))
    found = open_reranker("cross_encoder", tmp_path)
    assert found is not None and found.name == "maxsim"
    near, far = found.scores("report a bug", ["create issue in a repository", "weather forecast"])
    assert near > far
