"""The confidence of an answer, by words alone and with encoders, and the level that it says."""

from __future__ import annotations

from math import exp, log

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.retrieval import confidence
from foretool.retrieval.confidence import FAINTEST, Gate, Logistic, level, sufficiency
from foretool.retrieval.ranking import Evidence, ListFeatures, Ranked, Ranking
from foretool.storage.records import ToolId

SHARP = ListFeatures("minilm-tools+bge-small", top=14.0, margin=3.0, entropy=0.6, overlap=0.6, cosines=(0.75, 0.88))
FLAT = ListFeatures("minilm-tools+bge-small", top=2.5, margin=0.0, entropy=3.8, overlap=0.0, cosines=(0.15, 0.6))


def ranking(signs: ListFeatures) -> Ranking:
    evidence = Evidence(strength=1.0, entropy=1.0, coverage=0.9 if signs is SHARP else 0.0, features=signs)
    return Ranking((Ranked(ToolId("a"), 1.0),), 1, (evidence,))


def ranked_by(*evidence: Evidence) -> Ranking:
    return Ranking((Ranked(ToolId("a"), 1.0),), 1, evidence)


def test_the_probability_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"": Logistic(0.0, {}), "one": Logistic(-1.0, {"top": 0.5, "cosine_0": 2.0})}
    monkeypatch.setattr(confidence, "shipped", lambda: Gate("", models))
    evidence = Evidence(features=ListFeatures("one", top=3.0, cosines=(0.25,)))
    assert confidence.probability(evidence) == pytest.approx(1 / (1 + exp(-(-1.0 + 1.5 + 0.5))))
    unknown = Evidence(features=ListFeatures("another", top=3.0))
    assert confidence.probability(unknown) == 0.5


KNOWN = ("minilm", "minilm+bge-small", "minilm-tools", "minilm-tools+bge-small")


@pytest.mark.parametrize("encoders", [*KNOWN, "of a folder"])
def test_the_shipped_file_tells_a_sharp_list_from_a_flat_one(encoders: str) -> None:
    sharp, flat = (
        confidence.probability(Evidence(coverage=coverage, features=ListFeatures(encoders, *signs)))
        for coverage, signs in (
            (0.9, (SHARP.top, SHARP.margin, SHARP.entropy, SHARP.overlap, SHARP.cosines)),
            (0.0, (FLAT.top, FLAT.margin, FLAT.entropy, FLAT.overlap, FLAT.cosines)),
        )
    )
    assert flat < 0.4 < 0.8 < sharp


def test_the_shipped_file_says_what_it_was_fitted_on() -> None:
    assert "train (MIT)" in confidence.shipped().fitted_on
    assert confidence.shipped().models.keys() == {"", *KNOWN}
    assert confidence.shipped().least.keys() == set(KNOWN)


def test_levels_follow_the_probability() -> None:
    assert level(ranking(SHARP)) == "high"
    assert level(ranking(FLAT)) in ("low", "none")
    assert sufficiency(Evidence(named=True, features=FLAT)) == 1.0


def test_a_line_that_names_a_tool_is_no_chance() -> None:
    named = Ranking((Ranked(ToolId("a"), 1.0),), 1, (Evidence(named=True, features=FLAT),))
    assert level(named) == "high"


@requirement("gate:none")
def test_no_tool_fits_what_is_far_from_all_of_them() -> None:
    far = ListFeatures("minilm+bge-small", top=6.0, margin=2.0, entropy=1.0, overlap=0.6, cosines=(0.1, 0.5))
    assert level(ranking(far)) == "none"
    near = replace(far, cosines=(0.25, 0.6))
    assert level(ranking(near)) != "none"
    # Nobody looked at these cosines, so the probability decides: that of a sharp list is high enough.
    assert confidence.fits(Evidence(coverage=0.9, features=replace(SHARP, encoders="of a folder", cosines=(0.1,))))


@requirement("learn:detection")
def test_a_task_that_needs_no_tool_is_not_met_by_a_good_match() -> None:
    good = Evidence(strength=3.0, entropy=0.5)
    assert sufficiency(replace(good, needed=0.9)) == sufficiency(replace(good, needed=0.5)) == sufficiency(good)
    assert sufficiency(replace(good, needed=0.25)) == pytest.approx(0.5 * sufficiency(good))
    assert level(ranked_by(replace(good, needed=0.9))) == "high"
    assert level(ranked_by(replace(good, needed=0.04))) == "none"
    assert level(ranked_by(replace(good, needed=0.04, named=True))) == "high"


def test_sufficiency_is_the_logistic_of_its_two_features() -> None:
    evidence = Evidence(strength=2.0, entropy=1.0)
    assert sufficiency(evidence) == pytest.approx(1 / (1 + exp(-(1.49 + 1.29 * log(2.0) - 0.52))))
    assert sufficiency(Evidence(named=True)) == 1.0
    assert sufficiency(Evidence()) == 0.0


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ((Evidence(strength=2.0, entropy=0.5),), "high"),
        ((Evidence(strength=1.0, entropy=2.0),), "medium"),
        ((Evidence(strength=0.6, entropy=3.5),), "low"),
        ((Evidence(strength=FAINTEST * 0.99, entropy=0.0),), "none"),
        ((Evidence(named=True),), "high"),
        ((Evidence(named=True), Evidence()), "low"),
        ((Evidence(strength=2.0, entropy=0.5), Evidence(strength=0.6, entropy=3.5)), "medium"),
        ((), "low"),
    ],
)
def test_the_level_follows_the_evidence(evidence: tuple[Evidence, ...], expected: str) -> None:
    assert level(ranked_by(*evidence)) == expected


def test_an_empty_ranking_is_none() -> None:
    assert level(Ranking(evidence=(Evidence(named=True),))) == "none"
