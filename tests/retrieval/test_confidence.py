"""The judgement of a ranking: how likely k tools hold a needed one, the level, and how many tools to show."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log
from operator import mul

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.retrieval import confidence
from foretool.retrieval.calibration import AS_SHIPPED, Platt, Recalibration
from foretool.retrieval.confidence import (
    CHANCE_FEATURES,
    FAINTEST,
    HIGH,
    LEAST_SHOWN,
    MOST_SHOWN,
    Gate,
    GateWeights,
    Logistic,
    chance_features,
    gains,
    judge,
    level,
)
from foretool.retrieval.ranking import ClauseFit, Evidence, Nearness, Ranked, Ranking
from foretool.storage.records import ToolId

NO_GAIN = (0.0,) * len(CHANCE_FEATURES)
SHARP = Nearness("minilm-tools", cosines=(0.75,))
FLAT = Nearness("minilm-tools", cosines=(0.21,))
MET = Evidence(strength=2.0, entropy=0.5, coverage=0.9)
FAINT = Evidence(strength=0.4, entropy=3.7, coverage=0.1)
CLOSE = ClauseFit(coverage=0.9, strength=2.0, cosine=0.75, lead=0.5, met=0.75)
FAR = ClauseFit(coverage=0.1, strength=0.2, cosine=0.21, lead=0.02, met=0.21, agreed=0.2)
TASK = "open an issue about the crash"
A, B, C, D = (ToolId(f"s__{name}") for name in "abcd")
RANKED = (
    Ranked(A, 10.0, {"lexical": 1.5, "tasks": 8.0, "usage": 0.5}),
    Ranked(B, 5.0, {"lexical": 4.0, "history": 1.0}),
    Ranked(C, 1.0, {"lexical": 1.0}),
)


def ranked(*scores: float, **parts: float) -> tuple[Ranked, ...]:
    """Tools with these scores; `parts`: what was added to the score of the first one."""
    named = [Ranked(ToolId(f"t{place}"), score) for place, score in enumerate(scores)]
    return (replace(named[0], parts=parts), *named[1:]) if parts else tuple(named)


def fitting(found: tuple[Ranked, ...], fit: ClauseFit) -> tuple[Ranked, ...]:
    """The same tools, of which the first one meets the task so well."""
    return (replace(found[0], fit=fit), *found[1:])


def sharp(task: str = TASK, fit: ClauseFit = CLOSE, second: float = 2.0, **parts: float) -> Ranking:
    found = fitting(ranked(14.0, second, *([2.0] * 29), **parts), fit)
    return Ranking(found, 31, (replace(MET, nearness=SHARP),), bool(parts), task)


def flat(**parts: float) -> Ranking:
    found = fitting(ranked(*([2.5] * 31), **parts), FAR)
    return Ranking(found, 31, (replace(FAINT, nearness=FLAT),), bool(parts), TASK)


def weigh(gain: tuple[float, ...], gate: Logistic, first: float = 0.0) -> GateWeights:
    """Weights of which the first tool's odds are the same everywhere."""
    return GateWeights(gain, Logistic(first, {}), gate)


def only(weights: GateWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gate have these weights whatever was ranked."""
    gate = Gate("", {confidence.ANY: weights, confidence.ANY + confidence.AFTER_LEARNING: weights}, {"near": 0.2})
    monkeypatch.setattr(confidence, "shipped", lambda: gate)


@requirement("gate:adaptive")
def test_as_many_tools_are_shown_as_the_promise_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    # k tools hold a needed one with sigmoid(log k) = k / (k + 1), which is .9 at 9.
    only(weigh(NO_GAIN, Logistic(0.0, {"more": 1.0})), monkeypatch)
    found = judge(Ranking(ranked(*[1.0] * 40), 40, (MET,)))
    assert found.k == 9
    assert found.held[:3] == pytest.approx((1 / 2, 2 / 3, 3 / 4))
    assert (found.level, found.probability) == ("medium", pytest.approx(5 / 6))
    # A log in which such answers held less often than said: even 25 tools do not reach the promise.
    doubtful = judge(Ranking(ranked(*[1.0] * 40), 40, (MET,)), Recalibration(shown=Platt(shift=-2.0)))
    assert (doubtful.k, doubtful.level, doubtful.probability) == (MOST_SHOWN, "low", found.probability)
    sure = judge(Ranking(ranked(*[1.0] * 40), 40, (MET,)), Recalibration(shown=Platt(shift=2.0)))
    assert (sure.k, sure.level) == (LEAST_SHOWN, "medium")
    assert judge(Ranking(ranked(1.0, 1.0), 2, (MET,))).k == 2  # there are no more


def test_the_probability_reads_the_gain_of_every_shown_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each tool is needed with sigmoid(-1.0986) = 1/4: two of them hold a needed one with 1 - (3/4)^2 = 7/16.
    gain = (*NO_GAIN[:-1], -log(3.0))
    only(weigh(gain, Logistic(0.0, {"held": 1.0}), -log(3.0)), monkeypatch)
    found = judge(Ranking(ranked(1.0, 1.0, 1.0), 3, (MET,)))
    assert found.chances == pytest.approx((0.25, 0.25, 0.25))
    assert found.held == pytest.approx((1 / 4, 7 / 16, 1 - 27 / 64))


def test_the_gate_reads_how_well_the_first_tool_meets_the_task_and_how_far_it_is_ahead() -> None:
    found = confidence.signs(sharp(tasks=7.0))
    assert found == {
        "ahead": pytest.approx(12.0 / 14.0), "taught": 0.5, "coverage": 0.9, "strength": 2.0, "cosine": 0.75,
        "lead": 0.5, "met": 0.75, "agreed": 1.0, "clear": 0.75, "crowd": 0.0,
    }  # fmt: skip
    assert confidence.signs(flat())["ahead"] == 0.0
    # The second tool is .05 behind in cosine and the third .3: two crowd around the nearest.
    first, second, third, *others = sharp().ranked
    fits = (CLOSE, replace(CLOSE, cosine=0.7), replace(CLOSE, cosine=0.45))
    three = (replace(each, fit=fit) for each, fit in zip((first, second, third), fits, strict=True))
    found = confidence.signs(replace(sharp(), ranked=(*three, *others)))
    assert (found["clear"], found["crowd"]) == (pytest.approx(0.05), pytest.approx(log(2)))
    # What a tool gains by a word that looks like its name tells nothing.
    named = replace(sharp(), ranked=(replace(first, score=3014.0, parts={"name": 3000.0}), second, third, *others))
    assert confidence.signs(named) == confidence.signs(sharp())
    assert confidence.signs(Ranking(ranked(1.0), 1, (Evidence(named=True),))) == {}


@requirement("gate:high")
def test_the_level_is_high_where_the_first_tool_is_right_nine_times_in_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(odds: float, known: Recalibration = AS_SHIPPED) -> str:
        only(weigh(NO_GAIN, Logistic(4.0, {}), log(odds)), monkeypatch)
        return judge(sharp(), known).level

    assert HIGH == 0.9
    assert (judged(9.0), judged(8.0)) == ("high", "medium")
    # The log can take the level away, and give it where the gate is nearly sure.
    assert judged(9.0, Recalibration(first=Platt(shift=-0.1))) == "medium"
    assert judged(8.0, Recalibration(first=Platt(shift=0.2))) == "high"
    assert judged(5.0, Recalibration(first=Platt(shift=9.0))) == "medium"
    # What it knows of the first five says nothing of the first.
    assert judged(8.0, Recalibration(shown=Platt(shift=9.0))) == "medium"


@requirement("gate:high")
def test_of_two_tools_that_fit_alike_neither_is_sure_unless_the_task_has_several_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(weigh(NO_GAIN, Logistic(4.0, {}), 4.0), monkeypatch)
    assert judge(sharp(second=11.0)).level == "high"
    assert judge(sharp(second=12.0)).level == "medium"
    assert judge(sharp(second=12.0, fit=replace(CLOSE, needs=2))).level == "high"
    # Where one of the next tools says nearly the same, 1.27 times its score is not enough and 1.4 times is.
    alike = replace(CLOSE, alike=0.9)
    assert judge(sharp(second=11.0, fit=alike)).level == judge(sharp(second=12.0, fit=alike)).level == "medium"
    assert judge(sharp(second=10.0, fit=alike)).level == "high"
    assert judge(sharp(second=12.0, fit=replace(alike, needs=2))).level == "medium"


@requirement("gate:high")
def test_no_first_tool_of_a_task_that_tells_a_story_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    only(weigh(NO_GAIN, Logistic(4.0, {}), 4.0), monkeypatch)
    assert judge(sharp(" ".join(["word"] * 80))).level == "high"
    assert judge(sharp(" ".join(["word"] * 81))).level == "medium"


@requirement("gate:unread")
@pytest.mark.parametrize("task", ["hitta tåget till jobbet", "randevu almak istiyorum", "3 4 5 2 1", "x = f(y) ** qz"])
def test_the_level_of_a_task_that_cannot_be_read_is_never_high(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(weigh(NO_GAIN, Logistic(4.0, {}), 4.0), monkeypatch)
    assert judge(sharp(TASK)).level == "high"
    assert judge(sharp(task)).level == "medium"


KINDS = ("words", "minilm-tools", "any")


@pytest.mark.parametrize("encoders", ["words", "minilm-tools", "of a folder"])
def test_the_shipped_file_tells_a_sharp_list_from_a_flat_one(encoders: str) -> None:
    def told(ranking: Ranking) -> float:
        (evidence,) = ranking.evidence
        features = evidence.nearness
        kept = None if encoders == "words" or features is None else replace(features, encoders=encoders)
        probability = judge(replace(ranking, evidence=(replace(evidence, nearness=kept),))).probability
        assert probability is not None
        return probability

    assert told(flat()) < 0.55 < 0.7 < told(sharp())


def test_the_shipped_file_says_what_it_was_fitted_on() -> None:
    assert "train (MIT)" in confidence.shipped().fitted_on
    assert {*KINDS, *(f"{kind} learned" for kind in KINDS)} <= confidence.shipped().models.keys()
    assert "minilm-tools" in confidence.shipped().least


def test_encoders_that_nobody_fitted_are_judged_by_the_probability() -> None:
    def judged(ranking: Ranking, features: Nearness) -> tuple[str, bool]:
        own = replace(features, encoders="of a folder")
        found = judge(replace(ranking, evidence=(replace(ranking.evidence[0], nearness=own),)))
        return found.level, found.k > 0

    assert judged(sharp(), SHARP) == ("high", True)
    assert judged(flat(), FLAT) == ("none", False)


def test_more_tools_never_hold_less() -> None:
    for ranking in (sharp(), flat(), sharp(tasks=7.0), flat(tasks=1.0)):
        held = judge(ranking).held
        assert all(one <= next_one for one, next_one in pairwise(held))


def test_a_line_that_names_a_tool_is_no_chance() -> None:
    named = Ranking(ranked(1001.0, 1.0), 2, (Evidence(named=True, nearness=FLAT),))
    assert (judge(named).level, judge(named).k) == ("high", 1)
    two = Ranking(ranked(1001.0, 1001.0, 1.0), 3, (Evidence(named=True), Evidence(named=True)))
    assert (judge(two).level, judge(two).k) == ("high", 2)


@requirement("gate:none")
def test_no_tool_fits_what_is_far_from_all_of_them() -> None:
    far = replace(SHARP, cosines=(0.1,))
    ranking = Ranking(ranked(6.0, 5.0), 2, (replace(FAINT, nearness=far),))
    assert (judge(ranking).level, judge(ranking).k) == ("none", 0)
    near = Ranking(ranked(6.0, 5.0), 2, (replace(FAINT, nearness=replace(far, cosines=(0.4,))),))
    assert judge(near).level != "none" and judge(near).k > 0


@requirement("gate:none")
def test_a_tool_that_is_less_near_than_nearly_all_that_serve_a_task_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = weigh(NO_GAIN, Logistic(4.0, {}), 4.0)
    gate = Gate("", {confidence.ANY: weights, f"{confidence.ANY} learned": weights}, {"near": 0.2}, {"near": 0.4})
    monkeypatch.setattr(confidence, "shipped", lambda: gate)

    def judged(*cosines: float, encoders: str = "near", **parts: float) -> tuple[str, bool]:
        lines = (replace(MET, nearness=Nearness(encoders, (cosine,))) for cosine in cosines)
        found = judge(replace(sharp(**parts), evidence=tuple(lines)))
        return found.level, found.k > 0

    assert [judged(cosine) for cosine in (0.1, 0.3, 0.5)] == [("none", False), ("low", True), ("high", True)]
    # One need of several is enough, and so is what was learned; of other encoders nobody knows what is near.
    assert judged(0.3, 0.5) == judged(0.3, tasks=7.0) == judged(0.3, encoders="other") == ("high", True)


def test_the_shipped_file_doubts_more_than_it_holds_for_hopeless() -> None:
    shipped = confidence.shipped()
    assert 0.0 < shipped.least["minilm-tools"] < shipped.doubtful["minilm-tools"] < SHARP.cosines[0]


@requirement("gate:learned")
def test_what_something_learned_ranks_surely_is_never_none() -> None:
    far = (replace(FAINT, nearness=replace(FLAT, cosines=(0.1,))),)
    by_words = Ranking(ranked(6.0, 5.0, 1.0), 3, far)
    assert level(by_words) == "none"
    # 120 deviations above the rest, by what was learned alone.
    surely = Ranking(ranked(120.0, 5.0, 1.0, tasks=118.0), 3, far, is_learned=True)
    found = judge(surely)
    assert found.level in ("high", "medium", "low") and found.k > 0

    # A past wish in words of one's own; and a task that is hardly like a past one, which meaning alone gives a chance.
    def learned(best: float, **parts: float) -> str:
        found = fitting(ranked(best, 0.8, 0.6, 0.5, 0.4, **parts), replace(FAR, cosine=0.25))
        return level(Ranking(found, 5, far, is_learned=True))

    assert learned(6.3, history=7.5, reading=-1.5) != "none"
    assert learned(4.14, history=1.15) == "none"
    # What the models hardly say counts for nothing.
    assert level(Ranking(ranked(6.0, 5.0, 1.0, tasks=0.2), 3, far, is_learned=True)) == "none"


@requirement("learn:detection")
def test_a_task_that_needs_no_tool_is_not_met_by_a_good_match() -> None:
    good = Ranking(ranked(14.0, 2.0, 1.0), 3, (MET,))

    def needing(chance: float, named: bool = False) -> Ranking:
        return replace(good, evidence=(replace(MET, needed=chance, named=named),))

    first, sure = judge(good).held[0], judge(needing(0.5)).held[0]
    assert sure == first
    assert judge(needing(0.25)).held[0] == pytest.approx(0.5 * first)
    assert level(needing(0.04)) == "none"
    assert level(needing(0.04, named=True)) == "high"


def test_several_needs_share_the_places_and_count_by_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    only(weigh(NO_GAIN, Logistic(0.0, {"more": 1.0})), monkeypatch)
    found = judge(Ranking(ranked(*[1.0] * 8), 8, (MET, Evidence(named=True))))
    assert found.held[:4] == pytest.approx(tuple((1 + each) / 2 for each in (1 / 2, 1 / 2, 2 / 3, 2 / 3)))


@pytest.mark.parametrize(("shown", "expected"), [(1, 0.5), (2, 2 / 3), (5, 5 / 6), (9, 5 / 6)])
def test_a_short_answer_is_held_to_what_it_shows(shown: int, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    only(weigh(NO_GAIN, Logistic(0.0, {"more": 1.0})), monkeypatch)
    found = judge(Ranking(ranked(*[1.0] * 9), 9, (MET,)))
    assert found.among(shown) == pytest.approx(expected)
    assert found.among(0) == found.probability


def test_a_ranking_by_usage_alone_is_low_and_an_empty_one_none() -> None:
    assert (level(Ranking(ranked(1.0), 1)), judge(Ranking(ranked(1.0), 1)).probability) == ("low", None)
    assert judge(Ranking(evidence=(Evidence(named=True),))) == confidence.Judgement("none", None, 0)


def test_faint_words_are_chance_unless_the_list_is_worth_its_names() -> None:
    alike = Ranking(ranked(*[1.0] * 9), 9, (Evidence(strength=FAINTEST / 9, entropy=3.1),))
    faint = ClauseFit(coverage=0.5, strength=FAINTEST * 0.99)
    one = Ranking(fitting(ranked(1.0), faint), 1, (Evidence(strength=FAINTEST * 0.99),))
    assert [(level(each), (judge(each).probability or 0.0) >= confidence.WORTH) for each in (alike, one)] == [
        ("none", False),
        ("low", True),
    ]


def test_the_logistic_by_hand() -> None:
    model = Logistic(-1.0, {"best": 0.5, "cosine_0": 2.0})
    assert model.probability({"best": 3.0, "cosine_0": 0.25}) == pytest.approx(1 / (1 + exp(-1.0)))
    assert model.probability({}) == pytest.approx(1 / (1 + exp(1.0)))


def test_what_is_said_of_a_tool_is_its_place_its_score_and_where_that_comes_from() -> None:
    # The best score is 10, so a fifth of it is 2: 5 points behind are 2.5 of them, 8 points of past tasks are 4.
    assert chance_features(RANKED)[:2] == [
        (0.0, 0.0, log(11.0), 2.0, 4.0, 0.0, 0.0, 1.0),
        (log(2), -2.5, log(11.0), 4.0, 0.0, 1.0, 0.0, 1.0),
    ]
    # A best score under 3 is read as 3.
    assert chance_features([Ranked(A, 0.6, {"tasks": 0.6})]) == [(0.0, 0.0, log(1.6), 0.0, 1.0, 0.0, 0.0, 1.0)]
    assert chance_features(()) == []


def test_without_learned_parts_chances_are_the_same_sums() -> None:
    weights = (-0.7, 0.31, 0.2, -0.11, 3.0, 4.0, 5.0, -1.3)
    plain = [Ranked(A, 7.3, {"lexical": 7.1, "usage": 0.2}), Ranked(B, 7.3), Ranked(C, 0.4), Ranked(D, -2.0)]
    learned = [*plain, Ranked(A, -3.0, {"tasks": 0.5})]
    for ranked in (plain, learned, []):
        sums = [sum(map(mul, weights, each)) for each in chance_features(ranked)]
        assert gains(weights, ranked) == [1.0 / (1.0 + exp(-each)) for each in sums]
