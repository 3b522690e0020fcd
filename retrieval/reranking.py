"""A second look at the head of a ranking, by something too slow for all of it; off unless a setting says so.

score'(d) = score(d) + WEIGHT * spread * z(d): z over the head, spread the deviation of the head's own scores, whatever
scale those have. What reads query and tool together may only settle what is near: alone it is worse than what it
re-ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from statistics import fmean, pstdev
from typing import Protocol

from msgspec.structs import replace

from foretool.retrieval.encoders.weights import INSTALL, MANIFEST, EncoderError, Weights, locate, missing_libraries
from foretool.retrieval.ranking import Ranked, Ranking

DEPTH = 20
"""Tools that are looked at; 10 and 30 do no better."""
WEIGHT = 0.3
"""What a standard deviation of it counts beside one of the scores that were there before."""


class Reranker(Protocol):
    """Reads the query with each text."""

    @property
    def name(self) -> str: ...

    @property
    def described(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> list[float]: ...


def open_reranker(setting: str, cache: Path | None = None) -> Reranker | None:
    """What a setting means: "none"; "cross_encoder", which is `maxsim` where its weights are not installed; "maxsim";
    or a CrossEncoder of sentence-transformers by id or folder. Raises `EncoderError` where it cannot be had."""
    if setting == "none":
        return None
    _check(setting)
    from foretool.retrieval.rankers import cross_encoder

    if "/" in setting:
        return cross_encoder.HubCrossEncoder(setting)
    if setting == "cross_encoder" and locate(cross_encoder.WEIGHTS) is not None:
        return cross_encoder.CrossEncoder()
    return _maxsim(cache)


def described(setting: str) -> str:
    """What `open_reranker` opens, for people; "" for "none". Raises `EncoderError` as far as can be told beforehand."""
    if setting == "none":
        return ""
    _check(setting)
    from foretool.retrieval.rankers import cross_encoder

    if "/" in setting:
        if find_spec("sentence_transformers") is None:
            raise EncoderError(f"reranker {setting!r}: pip install sentence-transformers")
        return setting
    if setting == "cross_encoder" and locate(cross_encoder.WEIGHTS) is not None:
        return cross_encoder.WEIGHTS.described
    return f"maxsim over {_first().name}"


def _check(setting: str) -> None:
    if missing := missing_libraries():
        raise EncoderError(f"reranker {setting!r}: {', '.join(missing)} not installed; {INSTALL}")
    if setting not in ("cross_encoder", "maxsim") and "/" not in setting:
        raise EncoderError(
            f'reranker {setting!r}: expected "none", "cross_encoder", "maxsim", a folder, or a sentence-transformers id'
        )


def _maxsim(cache: Path | None) -> Reranker:
    from foretool.retrieval.encoders import onnx
    from foretool.retrieval.rankers.maxsim import MaxSim

    return MaxSim(onnx.opened(_first(), cache, 2))


def _first() -> Weights:
    for weights in MANIFEST:
        if locate(weights) is not None:
            return weights.untrained
    raise EncoderError(f"reranker: no encoder with token states is installed; {INSTALL}")


def reranked(ranking: Ranking, name: str, scores: Sequence[float], weight: float = WEIGHT) -> Ranking:
    """The ranking with its head in a new order; `scores` of its first tools. What was named stays first."""
    head = ranking.ranked[: len(scores)]
    told = [score if isfinite(score) else min(filter(isfinite, scores), default=0.0) for score in scores]
    deviation = pstdev(told) if told else 0.0
    spread = pstdev([each.score - each.parts.get("name", 0.0) for each in head]) if head else 0.0
    if deviation < 1e-9 or spread < 1e-9:
        return ranking
    mean, step = fmean(told), weight * spread / deviation
    raised = [_raised(each, name, step * (score - mean)) for each, score in zip(head, told, strict=True)]
    raised.sort(key=lambda each: -each.score)
    return replace(ranking, ranked=(*raised, *ranking.ranked[len(head) :]))


def _raised(ranked: Ranked, name: str, part: float) -> Ranked:
    return replace(ranked, score=ranked.score + part, parts={**ranked.parts, name: part})
