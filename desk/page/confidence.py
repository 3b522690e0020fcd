"""Confidence: what answers promised, and what held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from foretool.desk.page.overview import wilson
from foretool.server.config.loader import Config
from foretool.server.recording.calibration import EPS, WITHIN, Confidence, discovery_outcomes, rate_confidence
from foretool.server.recording.costs import FEWEST
from foretool.storage.opening import open_existing_store

_LATEST: Final = 2000
"""So many of the latest searches are compared with what followed them."""


_BINS: Final = 10


LEAST: Final = FEWEST
"""Fewer outcomes show nothing."""


class Bin(Struct, frozen=True):
    """The answers whose promise lay in one tenth."""

    low: float
    high: float
    count: int
    held: float
    """The share of which it came true."""
    bound: tuple[float, float]
    """The 95 % interval of `held`."""


class ConfidencePage(Struct, frozen=True):
    """How well confidence has matched what happened."""

    rated: Confidence | None
    """None with fewer than `LEAST` outcomes."""
    outcomes: int
    bins: Sequence[Bin]
    within: int = WITHIN
    promise: float = 1.0 - EPS
    """The share of needed tools that a list of `rated.show` tools promises to hold."""
    least: int = LEAST


def read_confidence(config: Config) -> ConfidencePage:
    """Return what the searches on record promised and what held. Raises `StorageError`."""
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
    """Return promises (probability, and 1.0 if it came true) by tenths, without those that have none."""
    tenths: dict[int, list[float]] = {}
    for probability, true in pairs:
        tenths.setdefault(min(int(probability * _BINS), _BINS - 1), []).append(true)
    return [
        Bin(
            place / _BINS, (place + 1) / _BINS, len(own), sum(own) / len(own), wilson(int(sum(own)), len(own)) or (0, 1)
        )
        for place, own in sorted(tenths.items())
    ]
