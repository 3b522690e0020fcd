"""The judgement of a ranking: how likely its first tool is a right one and a needed one is among the first k, the level
to say, and how many to show.

Each ranked tool has a *chance*, the probability that the task needs it: the gain of ITR's eq. 4. One model says how
likely the first tool is right, from how well it meets the task by words and meaning and how far it is ahead of others.
It was fitted on searches whose tool is there and on searches that no tool serves. A second one says the same of the
first k, with the chances of these tools beside it.

`gate.json` holds the shipped weights, and `python -m bench.retrieval.gate` fits them again: for words alone and for
every set of encoders, each with and without learned models. Encoders that nobody fitted use weights without cosines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil, log, prod
from operator import mul
from pathlib import Path

import msgspec
from msgspec import Struct

from foretool.retrieval.calibration import AS_SHIPPED, Recalibration, logit, sigmoid
from foretool.retrieval.clauses import is_story
from foretool.retrieval.ranking import CLEARLY, LEARNED, Evidence, Ranked, Ranking
from foretool.retrieval.words import terms
from foretool.storage.records import Level

CHANCE_FEATURES = ("place", "behind", "best", "found", "tasks", "history", "new", "bias")
"""What the probability of a ranked tool is computed from: the logarithm of its rank, how far its score is behind the
best one, the logarithm of the best one, its score from words and meaning, what three learned parts gave it, and 1.
Parts that are added into one score are read as a share of the best score, which models that believe in themselves more
with every run move by tens."""
_UNIT, LEAST_BEST = 5.0, 3.0
"""The unit of such a share, and the least best score that it is a share of."""
HIGH, _MEDIUM = 0.90, 0.55
"""Where the first tool is right with the one probability, the level is high; medium where a needed tool is among the
first `WITHIN` with the other."""
_LEAST_HIGH = 0.85
"""Where the first tool is right with a lower probability before recalibration, the level is not high, however often the
log of this machine was right: it says nothing of a task whose tool is not there."""
_READ = 0.7
"""Nothing is sure about a task of whose words a smaller share can be read: another language, code, figures."""
_PROMISE = 0.90
"""An answer shows as many tools as hold a needed one with this probability."""
_ROUNDED = 1e-9
"""Probabilities that differ by less are the same."""
LEAST_SHOWN = 3
"""A task often takes more than the one tool that the gate speaks of, and a line more costs little."""
MOST_SHOWN = 25
"""The most tools that one answer shows unasked."""
WITHIN = 5
"""The level says how likely a needed tool is among this many."""
FAINTEST = 0.35
"""Words whose match is weaker than this match by chance."""
_COVERED, _SPREAD = 0.6, 3.0
"""A tool that has this share of what the words of a line tell is no match by chance, however common the words are, if
the scores of the line have less entropy: words that some twenty tools share equally tell nothing."""
_UNNEEDED = 0.05
"""Below this probability that a task needs a tool at all, whatever matches is chance."""
_LEAST_FIT = 0.35
"""With encoders of unknown cosines, no tool fits below this probability."""
WORTH = 0.2
"""Words alone whose list holds a needed tool with this probability are worth the names of their tools, if it has less
entropy: in a small catalogue the words that tell are common, so their strength is low."""
_SURE = 0.4
"""A tool with this chance, most of whose score was learned, is no match by chance. A past wish in words of one's own
has little more: no tool of it is near by meaning."""
_TAUGHT = 0.5
"""The least share of the best score that learned models gave where they rank surely. Below it the chance is that of
words and meaning, which strange tasks have too."""
ALIKE, _AMONG_ALIKE = 0.87, 4 / 3
"""From this cosine on two tools say nearly the same. The first of such tools is clearly better where its score is so
many times the next one."""
_CROWD = 0.1
"""Tools whose cosine is so little behind the nearest one crowd around it."""
_AHEAD_OF = 5
"""The place of the tool that the first one is compared with: the next ones often do nearly the same."""

AFTER_LEARNING, ANY = " learned", "any"
"""What the kind of a list ends with where models took part, and the kind of encoders that nobody fitted."""

FILE = Path(__file__).with_name("gate.json")


def gains(weights: Sequence[float], ranked: Sequence[Ranked]) -> list[float]:
    """Return the probability that the task needs each tool of a ranking, logistic in the place, the score and
    its parts. `weights`: one for each of `CHANCE_FEATURES`."""
    return [sigmoid(sum(map(mul, weights, each))) for each in chance_features(ranked)]


def chance_features(ranked: Sequence[Ranked]) -> list[tuple[float, ...]]:
    """Return the `CHANCE_FEATURES` of each tool of a ranking, best first."""
    best = ranked[0].score if ranked else 0.0
    unit, size = _UNIT / max(best, LEAST_BEST), log(1.0 + max(best, 0.0))
    return [
        (
            log(rank), unit * (each.score - best), size,
            each.score - sum(each.parts.get(part, 0.0) for part in LEARNED),
            unit * each.parts.get("tasks", 0.0), each.parts.get("history", 0.0), unit * each.parts.get("new", 0.0), 1.0,
        )
        if not LEARNED.isdisjoint(each.parts)
        else (log(rank), unit * (each.score - best), size, each.score, 0.0, 0.0, 0.0, 1.0)
        for rank, each in enumerate(ranked, 1)
    ]  # fmt: skip


class Logistic(Struct, frozen=True):
    """A logistic model with one weight for each named feature."""

    bias: float
    weights: dict[str, float]

    def probability(self, features: dict[str, float]) -> float:
        """Return the probability, 0 to 1; a feature that is missing counts as 0."""
        return sigmoid(self.bias + sum(weight * features.get(name, 0.0) for name, weight in self.weights.items()))


class GateWeights(Struct, frozen=True):
    """The weights that were fitted on one kind of ranking (`weights_name`)."""

    gain: tuple[float, ...]
    """The weights of `CHANCE_FEATURES`, which give each tool its chance."""
    first: Logistic
    """Gives the probability that the first tool is a right one."""
    gate: Logistic
    """Gives the probability that a needed tool is among the first k, for a k above 1."""


class Gate(Struct, frozen=True):
    """The content of `gate.json`: the weights that judge rankings."""

    fitted_on: str
    models: dict[str, GateWeights]
    """By `weights_name`."""
    least: dict[str, float] = {}
    """By encoders, the mean cosine of the best tool below which no tool fits."""
    doubtful: dict[str, float] = {}
    """The same below which the level is low at most: nearly every task that a tool serves has a nearer one."""


class Judgement(Struct, frozen=True):
    """How sure a ranking is and how many of its tools to show. Answers, steps, prompt hints and growing lists all use
    this one judgement."""

    level: Level
    probability: float | None
    """How likely a needed tool is among the first `WITHIN`, before calibration; None without words to be met."""
    k: int
    """How many tools to show, best first; 0 where none fits."""
    chances: tuple[float, ...] = ()
    """How likely the task needs each of the ranked tools."""
    held: tuple[float, ...] = ()
    """How likely a needed tool is among the first 1, 2, ... tools, before calibration."""

    def among(self, shown: int) -> float | None:
        """Return the probability that a needed tool is among the first `shown` tools (counted up to `WITHIN`)."""
        if not self.held or shown < 1:
            return self.probability
        return self.held[min(shown, WITHIN, len(self.held)) - 1]


def judge(ranking: Ranking, recalibration: Recalibration = AS_SHIPPED) -> Judgement:
    """Judge a ranking. `recalibration` turns a probability into what such probabilities have been worth so far; the
    level and the number of tools follow from its results."""
    if not ranking.ranked:
        return Judgement("none", None, 0)
    chances = tuple(gains(weights_for(ranking).gain, ranking.ranked))
    if not ranking.evidence:
        return Judgement("low", None, min(MOST_SHOWN, len(ranking.ranked)), chances)  # ranked by usage alone
    held = tuple(_held(ranking, chances))
    said = held[min(WITHIN, len(held)) - 1]
    is_learned = _is_learned(ranking, chances)
    if not is_learned and all(_is_chance(each, said) for each in ranking.evidence):
        return Judgement("none", said, 0, chances, held)
    is_doubtful = not is_learned and all(map(_is_doubtful, ranking.evidence))
    named = all(evidence.named for evidence in ranking.evidence)
    if named:
        recalibration = AS_SHIPPED
    is_right = held[0] >= _LEAST_HIGH - _ROUNDED and recalibration.first(held[0]) >= HIGH - _ROUNDED
    is_sure = named or (is_right and is_ahead(ranking) and is_read(ranking) and not is_story(ranking.task))
    level: Level = "high" if is_sure else "medium" if recalibration.shown(said) >= _MEDIUM else "low"
    if is_doubtful:
        level = "low"  # how likely a needed tool is among the first ones was fitted on tasks that have one
    worth = (recalibration.among(k, each) for k, each in enumerate(held, 1))
    enough = next((k for k, each in enumerate(worth, 1) if each >= _PROMISE - _ROUNDED), len(held))
    return Judgement(level, said, enough if named else max(enough, min(LEAST_SHOWN, len(held))), chances, held)


def level(ranking: Ranking) -> Level:
    """Return the confidence level of a ranking, as `judge` does without recalibration."""
    return judge(ranking).level


def weights_name(ranking: Ranking) -> str:
    """Return which weights judge a ranking: the encoders that took part, or `words`, and whether models did."""
    found = next((each.nearness.encoders for each in ranking.evidence if each.nearness is not None), "words")
    return f"{found}{AFTER_LEARNING}" if ranking.is_learned else found


def weights_for(ranking: Ranking) -> GateWeights:
    """Return the shipped weights for a ranking; those of any encoder where its encoders were not fitted."""
    models, kind = shipped().models, weights_name(ranking)
    return models.get(kind) or models[ANY + AFTER_LEARNING * kind.endswith(AFTER_LEARNING)]


def taught(ranked: Ranked) -> float:
    """Return the part of a tool's score that learned models added."""
    return sum(ranked.parts.get(part, 0.0) for part in LEARNED)


def signs(ranking: Ranking) -> dict[str, float]:
    """Return the features of a ranking that the gate reads and that do not depend on k, by name; {} where nothing in
    words ranked it."""
    if not ranking.ranked or (fit := ranking.ranked[0].fit) is None:
        return {}
    scores = [_unnamed_score(each) for each in ranking.ranked[:_AHEAD_OF]]
    best, fits = max(scores[0], LEAST_BEST), [each.fit for each in ranking.ranked if each.fit is not None]
    nearest = max(each.cosine for each in fits)
    return {
        "ahead": (scores[0] - scores[-1]) / best if len(scores) == _AHEAD_OF else 1.0,
        "coverage": fit.coverage,
        "strength": fit.strength,
        "cosine": fit.cosine,
        "clear": fit.cosine - (fits[1].cosine if len(fits) > 1 else 0.0),
        "crowd": log(sum(each.cosine >= nearest - _CROWD for each in fits)) if fit.met else 0.0,
        "lead": fit.lead,
        "met": fit.met,
        "agreed": fit.agreed,
        "taught": min(max(taught(ranking.ranked[0]) / best, 0.0), 1.0),
    }


def is_ahead(ranking: Ranking) -> bool:
    """Return whether the first tool is clearly better than the next one, which else may be meant as well. Each need of
    a task that has several may have its own tool among the first, unless two of these say nearly the same."""
    first, *others = ranking.ranked
    is_alike = first.fit is not None and first.fit.alike >= ALIKE
    is_one = first.fit is None or first.fit.needs == 1
    if not others or not (is_one or is_alike):
        return True
    return _unnamed_score(first) >= (_AMONG_ALIKE if is_alike else CLEARLY) * _unnamed_score(others[0])


def _unnamed_score(ranked: Ranked) -> float:
    """Return the score of a tool without what it gains by its name: a word of the task may only look like a name."""
    return ranked.score - ranked.parts.get("name", 0.0)


def is_read(ranking: Ranking) -> bool:
    """Return whether enough of the words of a task can be read for a level to be high."""
    from foretool.retrieval.glossary import legibility  # reads a word list, which only a level that may be high needs

    return legibility(ranking.task).share >= _READ and any(map(str.isalpha, terms(ranking.task)))


def at_most(chances: Sequence[float], k: int) -> dict[str, float]:
    """Return the features that the gate reads of the first k tools, by name. `chances`: for each tool, best first, the
    probability that the task needs it."""
    none = prod(1.0 - chance for chance in chances[:k])
    return {"held": logit(1.0 - none), "more": log(k)}


def _held(ranking: Ranking, chances: Sequence[float]) -> list[float]:
    """Return how likely a needed tool is among the first 1, 2, ... tools, which never falls. Several needs count by the
    mean of their probabilities, and share the places."""
    evidence = ranking.evidence
    named = sum(each.named for each in evidence)
    most = min(MOST_SHOWN, len(ranking.ranked))
    if named == len(evidence):
        return [min(k / named, 1.0) for k in range(1, max(most, 1) + 1)]
    weights, whole = weights_for(ranking), signs(ranking)
    # A task that more likely than not needs no tool has none among the first ones either.
    open_lines = [each for each in evidence if not each.named]
    doubt = sum(1.0 if each.needed is None else min(2.0 * each.needed, 1.0) for each in open_lines) / len(open_lines)
    found, highest, lines = list[float](), 0.0, len(evidence)
    probabilities = [weights.first.probability(whole)]
    for k in range(2, ceil(most / lines) + 1):
        probabilities.append(weights.gate.probability(whole | at_most(chances, k)))
    if _is_learned(ranking, chances):
        probabilities[0] = max(probabilities[0], chances[0])
    for k in range(most):
        probability = doubt * probabilities[k // lines]
        highest = max((named + (lines - named) * probability) / lines, highest)
        found.append(highest)
    return found


def fits(evidence: Evidence, probability: float = 0.0) -> bool:
    """Return whether any tool fits this line at all, by words and meaning. The cosines alone answer this better than
    the probability does (`docs/benchmarks.md`), which decides only for encoders whose cosines nobody fitted."""
    if evidence.nearness is None:
        return evidence.strength >= FAINTEST or (evidence.coverage >= _COVERED and evidence.entropy < _SPREAD)
    least = shipped().least.get(evidence.nearness.encoders)
    if least is None:
        return probability >= _LEAST_FIT
    cosines = evidence.nearness.cosines
    return sum(cosines) / len(cosines) >= least


def _is_doubtful(evidence: Evidence) -> bool:
    """Return whether the best tool is less near to this line than to nearly every one that a tool serves. Words alone,
    and encoders whose cosines nobody fitted, do not tell."""
    near = evidence.nearness
    if evidence.named or near is None or (least := shipped().doubtful.get(near.encoders)) is None:
        return False
    return sum(near.cosines) / len(near.cosines) < least


@cache
def shipped() -> Gate:
    return msgspec.json.decode(FILE.read_bytes(), type=Gate)


def _is_learned(ranking: Ranking, chances: Sequence[float]) -> bool:
    """Return whether something learned ranks the first tool surely, whatever its words and meaning are."""
    best = ranking.ranked[0]
    return chances[0] >= _SURE and taught(best) >= _TAUGHT * max(best.score, LEAST_BEST)


def _is_chance(evidence: Evidence, probability: float) -> bool:
    if evidence.named:
        return False
    if evidence.needed is not None and evidence.needed < _UNNEEDED:
        return True
    if evidence.nearness is None and probability >= WORTH and evidence.entropy < _SPREAD:
        return False
    return not fits(evidence, probability)
