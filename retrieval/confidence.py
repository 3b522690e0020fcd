"""How likely a needed tool is among the first five, once encoders take part: logistic, read from `gate.json`.

ITR section 4 asks a model to rate itself; a list can be rated without one. The file says what it was fitted on;
`python -m bench.retrieval.gate` fits it and prints how well it is calibrated. Each set of encoders has its own
weights, because cosines of different encoders have different ranges; sets that nobody fitted have weights without
cosines (`""`).
"""

from __future__ import annotations

from functools import cache
from math import exp
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec import Struct

from foretool.retrieval.ranking import Evidence

NONE = 0.35
"""Where nobody looked at the encoders' cosines, below this probability nothing fits."""

FILE = Path(__file__).with_name("gate.json")


class Logistic(Struct, frozen=True):
    """Weights by feature, for features as they are."""

    bias: float
    weights: dict[str, float]

    def probability(self, features: dict[str, float]) -> float:
        """0 to 1."""
        logit = self.bias + sum(weight * features.get(name, 0.0) for name, weight in self.weights.items())
        return 1.0 / (1.0 + exp(-max(min(logit, 30.0), -30.0)))


class Gate(Struct, frozen=True):
    """The file."""

    fitted_on: str
    models: dict[str, Logistic]
    least: dict[str, float] = {}
    """By encoders, the mean cosine of the best tool below which no tool fits: a little less than what all but one in a
    hundred of the queries that need a tool have, on the train split of metatool_awareness (MIT), by the untrained
    encoders."""


def features(evidence: Evidence) -> dict[str, float]:
    """What the gate reads of one line; {} while words alone rank."""
    signs = evidence.signs
    if signs is None:
        return {}
    cosines = {f"cosine_{place}": cosine for place, cosine in enumerate(signs.cosines)}
    return {
        "top": signs.top,
        "margin": signs.margin,
        "entropy": signs.entropy,
        "overlap": signs.overlap,
        "coverage": evidence.coverage,
        **cosines,
    }


def probability(evidence: Evidence) -> float:
    """That a tool this line needs is among the first five; only for evidence with signs."""
    assert evidence.signs is not None
    gate = shipped()
    model = gate.models.get(evidence.signs.encoders) or gate.models[""]
    return model.probability(features(evidence))


def fits(evidence: Evidence) -> bool:
    """Whether any tool fits this line at all; only for evidence with signs.

    That is another question than whether the first five suffice, and the cosines alone answer it better (AUC .89
    against .86 on metatool_awareness). With encoders that nobody looked at, the probability has to do.
    """
    assert evidence.signs is not None
    least = shipped().least.get(evidence.signs.encoders)
    if least is None:
        return probability(evidence) >= NONE
    return fmean(evidence.signs.cosines) >= least


@cache
def shipped() -> Gate:
    """The file of this installation."""
    return msgspec.json.decode(FILE.read_bytes(), type=Gate)
