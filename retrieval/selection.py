"""Pins, budget, gate: which of the ranked tools are shown, and how sure we are that they suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, log

from foretool.retrieval.rankers.usage import decayed
from foretool.retrieval.ranking import Evidence, Query, Ranking
from foretool.storage.records import Cause, Level, ToolId, Usage

# Words alone: logistic regression of "a gold tool is among the first five" on stabletoolbench (dev, 400 queries) and
# toole (train, 400), each alone and among 4,400 other tools. `python -m bench.retrieval.ranking` prints what each
# level is worth elsewhere; `retrieval/confidence.py` has the same for lists in which encoders take part.
_BIAS, _STRENGTH, _ENTROPY = 1.49, 1.29, -0.52
HIGH, MEDIUM = 0.80, 0.55
"""Least probability of each level."""
FAINTEST = 0.35
"""Below this strength a match is chance: less than one needed tool in a hundred matches so badly on the train sets."""


UNNEEDED = 0.05
"""Below this probability of needing a tool at all, whatever matches is chance."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What fits, in the order shown, and why each of the others does not."""

    chosen: tuple[ToolId, ...] = ()
    cut: dict[ToolId, Cause] = field(default_factory=dict)
    tokens: int = 0
    """Tokens of everything chosen."""


def sufficiency(evidence: Evidence) -> float:
    """Probability that a tool this line needs is among the first five."""
    if evidence.named:
        return 1.0
    # A task that more likely than not needs no tool has none among the first five either.
    doubt = 1.0 if evidence.needed is None else min(2.0 * evidence.needed, 1.0)
    return doubt * _by_match(evidence)


def _by_match(evidence: Evidence) -> float:
    if evidence.signs is not None:
        from foretool.retrieval import confidence as gate  # a file to read, for who has an encoder

        return gate.probability(evidence)
    if evidence.strength <= 0.0:
        return 0.0
    return 1.0 / (1.0 + exp(-(_BIAS + _STRENGTH * log(evidence.strength) + _ENTROPY * evidence.entropy)))


def level(ranking: Ranking, query: Query, calibrate: Callable[[float], float] | None = None) -> Level:
    """The level alone of `assess`."""
    return assess(ranking, query, calibrate)[0]


def assess(
    ranking: Ranking, query: Query, calibrate: Callable[[float], float] | None = None
) -> tuple[Level, float | None]:
    """How likely a needed tool is among the first five; over several needs the mean, the share that is likely met.

    The level, and the probability as the gate says it, None where there were no words to be right or wrong about.
    `calibrate` turns it into what such probabilities have been worth here; the level is read from that.
    """
    if not ranking.ranked:
        return "none", None
    if not ranking.evidence:
        return "low", None  # ranked by usage alone
    said = sum(map(sufficiency, ranking.evidence)) / len(ranking.evidence)
    if all(map(_is_chance, ranking.evidence)):
        return "none", said
    named = all(evidence.named for evidence in ranking.evidence)
    probability = said if calibrate is None or named else calibrate(said)
    return ("high" if probability >= HIGH else "medium" if probability >= MEDIUM else "low"), said


def _is_chance(evidence: Evidence) -> bool:
    if evidence.named:
        return False
    if evidence.needed is not None and evidence.needed < UNNEEDED:
        return True
    if evidence.signs is not None:
        from foretool.retrieval import confidence as gate

        return not gate.fits(evidence)
    return evidence.strength < FAINTEST


def select(
    ranking: Ranking, tokens: Callable[[ToolId], int], budget: int, cap: int, pins: Sequence[ToolId] = ()
) -> Selection:
    """Pins first, then greedily down the ranking while `budget` tokens last, at most `cap` tools besides the pins.

    Pins are shown even when they alone exceed the budget. A tool too big for what is left is passed over, and smaller
    ones below it still come in. `cut` says "budget" for it and "rank" for those beyond the cap.
    """
    chosen = list(dict.fromkeys(pins))
    pinned = frozenset(chosen)
    used = sum(tokens(tool) for tool in chosen)
    cut: dict[ToolId, Cause] = {}
    for tool in (each.tool for each in ranking.ranked if each.tool not in pinned):
        if len(chosen) - len(pinned) >= cap:
            cut[tool] = "rank"
        elif used + (size := tokens(tool)) > budget:
            cut[tool] = "budget"
        else:
            chosen.append(tool)
            used += size
    return Selection(tuple(chosen), cut, used)


def working_set(
    usages: Sequence[Usage], tokens: Callable[[ToolId], int], budget: int, now: float, half_life_s: float
) -> list[ToolId]:
    """The tools most used lately, most used first, within `budget` tokens; a miss counts more than a call."""
    worth = {each.tool: decayed(each, now, half_life_s) for each in usages}
    chosen: list[ToolId] = []
    for tool in sorted((tool for tool in worth if worth[tool] > 0.0), key=lambda tool: (-worth[tool], tool)):
        size = tokens(tool)
        if size <= budget:
            chosen.append(tool)
            budget -= size
    return chosen
