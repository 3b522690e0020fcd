"""What was learned: each run, what its models became, and whether the confidence of answers held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from foretool.desk.page.overview import wilson
from foretool.server.config.loader import Config
from foretool.server.recording.calibration import EPS, WITHIN, Confidence, discovery_outcomes, rate_confidence
from foretool.server.recording.costs import FEWEST
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Artifact

_SHOWN: Final = 200
"""How many trained models are listed."""
_LATEST: Final = 2000
"""So many of the latest searches are compared with what followed them."""


_BINS: Final = 10


LEAST: Final = FEWEST
"""Fewer outcomes show nothing."""


class Lesson(Struct, frozen=True):
    """One trained model, and how it compared with the one in use."""

    kind: str
    number: int
    at: float
    state: str
    tasks: int
    replayed: int
    before: float | None
    """Mean reciprocal rank of the next tool; None where nothing was compared."""
    after: float | None
    difference: tuple[float, float, float] | None
    """Low end, mean and high end."""


class LearningRun(Struct, frozen=True):
    """The models that one learning run trained."""

    at: float
    lessons: Sequence[Lesson]


def read_runs(config: Config) -> list[LearningRun]:
    """Return the learning runs, the newest first. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        return cut_runs(store.artifacts.history(limit=_SHOWN))


def cut_runs(found: Sequence[Artifact]) -> list[LearningRun]:
    """Sort models, the newest first, into the runs that trained them: the record of a run comes after its models."""
    runs: list[tuple[float, list[Lesson]]] = []
    for each in found:
        if each.kind == "run":
            runs.append((each.created_at, []))
            continue
        if not runs:
            runs.append((each.created_at, []))  # a run that goes on, or broke off
        runs[-1][1].append(read_lesson(each))
    return [LearningRun(at, lessons) for at, lessons in runs if lessons]


def read_lesson(artifact: Artifact) -> Lesson:
    """Return what the report of a trained model says; values that it lacks stay empty."""
    report: dict[str, Any] = artifact.report
    old, new = report.get("old") or {}, report.get("new") or {}
    difference = report.get("difference")
    return Lesson(
        kind=artifact.kind,
        number=artifact.number,
        at=artifact.created_at,
        state=_say_state(artifact),
        tasks=int(report.get("episodes") or 0),
        replayed=int(report.get("replayed") or 0),
        before=old.get("mrr"),
        after=new.get("mrr"),
        difference=(difference[0], difference[1], difference[2]) if difference and len(difference) == 3 else None,
    )


def _say_state(artifact: Artifact) -> str:
    if artifact.active:
        return "serves"
    return "replaced" if artifact.promoted_at else "not better"


class Bin(Struct, frozen=True):
    """The searches for which the gate stated a probability within one tenth, and how often it was right."""

    low: float
    high: float
    count: int
    held: float
    """The share of which it came true."""
    bound: tuple[float, float]
    """The 95 % interval of `held`."""


class ConfidencePage(Struct, frozen=True):
    """How often searches were right, compared with the probabilities that the gate stated."""

    rated: Confidence | None
    """None with fewer than `LEAST` outcomes."""
    outcomes: int
    bins: Sequence[Bin]
    within: int = WITHIN
    promise: float = 1.0 - EPS
    """The share of needed tools that a list of `rated.show` tools promises to hold."""
    least: int = LEAST


def read_confidence(config: Config) -> ConfidencePage:
    """Return how often searches on record were right, compared with the probabilities that the gate stated. Raises
    `StorageError`."""
    with open_existing_store(config.storage) as store:
        outcomes = discovery_outcomes(store.discoveries, _LATEST)
    pairs = [
        (outcome.probability, float(outcome.rank is not None and outcome.rank <= WITHIN))
        for outcome in outcomes
        if outcome.probability is not None
    ]
    rated = rate_confidence(outcomes) if len(pairs) >= LEAST else None
    return ConfidencePage(rated, len(outcomes), make_bins(pairs))


def make_bins(pairs: Sequence[tuple[float, float]]) -> list[Bin]:
    """Return pairs of a stated probability and whether it came true, grouped by tenths; tenths without any are left
    out."""
    tenths: dict[int, list[float]] = {}
    for probability, true in pairs:
        tenths.setdefault(min(int(probability * _BINS), _BINS - 1), []).append(true)
    return [
        Bin(
            place / _BINS, (place + 1) / _BINS, len(own), sum(own) / len(own), wilson(int(sum(own)), len(own)) or (0, 1)
        )
        for place, own in sorted(tenths.items())
    ]
