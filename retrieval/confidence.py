"""How likely a needed tool is among the first five of a ranking, and the level that an answer says.

Where words alone rank, a logistic regression over two features gives the probability. Where encoders take part, the
weights stand in `gate.json`, which `python -m bench.retrieval.gate` fits again. Each set of encoders has its own,
because cosines of different encoders have different ranges; encoders that nobody fitted use weights without cosines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import log
from pathlib import Path

import msgspec
from msgspec import Struct

from foretool.retrieval.calibration import sigmoid
from foretool.retrieval.ranking import Evidence, Ranking
from foretool.storage.records import Level

# Words alone: "a needed tool is among the first five", fitted on the train sets of stabletoolbench and toole.
_BIAS, _STRENGTH, _ENTROPY = 1.49, 1.29, -0.52
HIGH, MEDIUM = 0.80, 0.55
"""Least probability of each level."""
MOST_SHOWN = 12
"""The most tools that one answer shows unasked."""
FAINTEST = 0.35
"""Words whose match is weaker than this match by chance."""
COVERED, SPREAD = 0.6, 3.0
"""A tool that has this share of what the words of a line tell is no match by chance, however common the words are, if
the scores of the line have less entropy: words that some twenty tools share equally tell nothing."""
UNNEEDED = 0.05
"""Below this probability that a task needs a tool at all, whatever matches is chance."""
LEAST_FIT = 0.35
"""With encoders of unknown cosines, no tool fits below this probability."""

FILE = Path(__file__).with_name("gate.json")


class Logistic(Struct, frozen=True):
    """A logistic model with one weight for each named feature."""

    bias: float
    weights: dict[str, float]

    def probability(self, features: dict[str, float]) -> float:
        """Return the probability, 0 to 1; a feature that is missing counts as 0."""
        return sigmoid(self.bias + sum(weight * features.get(name, 0.0) for name, weight in self.weights.items()))


class Gate(Struct, frozen=True):
    """What `gate.json` holds."""

    fitted_on: str
    models: dict[str, Logistic]
    """By the names of the encoders, joined by `+`."""
    least: dict[str, float] = {}
    """By encoders, the mean cosine of the best tool below which no tool fits."""


class Judgement(Struct, frozen=True):
    """What is thought of a ranking: the one judgement that answers, steps, prompts and lists that grow go by."""

    level: Level
    probability: float | None
    """How likely a needed tool is among the first five, before calibration; None without words to be met or missed."""
    k: int
    """How many tools to show, best first; 0 where none fits."""


def judge(ranking: Ranking, calibrate: Callable[[float], float] | None = None) -> Judgement:
    """Judge a ranking. Several needs count by the mean of their probabilities. `calibrate` turns a probability into
    what such probabilities have been worth so far; the level follows from its result."""
    if not ranking.ranked:
        return Judgement("none", None, 0)
    if not ranking.evidence:
        return Judgement("low", None, MOST_SHOWN)  # ranked by usage alone
    said = sum(map(sufficiency, ranking.evidence)) / len(ranking.evidence)
    if all(map(_is_chance, ranking.evidence)):
        return Judgement("none", said, 0)
    named = all(evidence.named for evidence in ranking.evidence)
    probability = said if calibrate is None or named else calibrate(said)
    return Judgement("high" if probability >= HIGH else "medium" if probability >= MEDIUM else "low", said, MOST_SHOWN)


def level(ranking: Ranking) -> Level:
    """Return the level of `judge` alone."""
    return judge(ranking).level


def sufficiency(evidence: Evidence) -> float:
    """Return the probability that a tool this line needs is among the first five."""
    if evidence.named:
        return 1.0
    # A task that more likely than not needs no tool has none among the first five either.
    doubt = 1.0 if evidence.needed is None else min(2.0 * evidence.needed, 1.0)
    return doubt * probability(evidence)


def probability(evidence: Evidence) -> float:
    """Return the probability that a needed tool is among the first five, given that the line needs one."""
    if evidence.features is not None:
        models = shipped().models
        return models.get(evidence.features.encoders, models[""]).probability(model_inputs(evidence))
    if evidence.strength <= 0.0:
        return 0.0
    return sigmoid(_BIAS + _STRENGTH * log(evidence.strength) + _ENTROPY * evidence.entropy)


def fits(evidence: Evidence) -> bool:
    """Tell whether any tool fits this line at all. The cosines alone answer this better than the probability does
    (`docs/benchmarks.md`), which decides only for encoders whose cosines nobody fitted."""
    if evidence.features is None:
        return evidence.strength >= FAINTEST or (evidence.coverage >= COVERED and evidence.entropy < SPREAD)
    least = shipped().least.get(evidence.features.encoders)
    if least is None:
        return probability(evidence) >= LEAST_FIT
    cosines = evidence.features.cosines
    return sum(cosines) / len(cosines) >= least


def model_inputs(evidence: Evidence) -> dict[str, float]:
    """Return what the fitted models read of one line; {} while words alone rank."""
    found = evidence.features
    if found is None:
        return {}
    cosines = {f"cosine_{place}": cosine for place, cosine in enumerate(found.cosines)}
    return {
        "top": found.top,
        "margin": found.margin,
        "entropy": found.entropy,
        "overlap": found.overlap,
        "coverage": evidence.coverage,
        **cosines,
    }


@cache
def shipped() -> Gate:
    """Return the fitted models of this installation."""
    return msgspec.json.decode(FILE.read_bytes(), type=Gate)


def _is_chance(evidence: Evidence) -> bool:
    if evidence.named:
        return False
    return (evidence.needed is not None and evidence.needed < UNNEEDED) or not fits(evidence)
