"""Compares the confidence of answers with what happened after them, and recalibrates the gate where that helps.

From time to time the outcomes of the recorded discoveries are read. A map from the probability of the gate to a better
one is fitted on their earlier half. If the map is closer than the gate on the later half, it is fitted on all outcomes,
and levels are read from it. The gate alone serves until there are enough outcomes, and again when the map no longer
helps.

They are read in a thread, over a connection of its own: for a long log that takes tenths of a second, and no call
should wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.opening import open_store
from foretool.storage.records import Discovery, DiscoveryOutcome, Event
from foretool.storage.stores import DiscoveryStore, StorageError, Store

if TYPE_CHECKING:
    from foretool.retrieval.calibration import Platt

EVERY_S: Final = 600.0
LEAST: Final = 200
"""Outcomes worth recalibrating on; fewer say less than the shipped gate."""
WITHIN: Final = 5
"""The gate predicts that a needed tool is among the first five."""
EPS: Final = 0.1
"""Share of needed tools that may be hidden: `conformal_k` keeps this promise."""
FOLLOWS_S: Final = 1800.0
"""A need later than this has nothing to do with the discovery."""


class Confidence(Struct, frozen=True):
    """How well confidence has matched the outcomes of discoveries."""

    verdicts: int
    """Discoveries whose outcome is known."""
    found: float
    """Share of them whose needed tool was among the first five."""
    error: float
    """Expected calibration error of the gate as shipped, over the later half."""
    recalibrated_error: float
    """The same after the map fitted on the earlier half."""
    show: int | None
    """The k for which at most `EPS` of needed tools are hidden, computed on the earlier half; None if there is none."""
    kept: float
    """Share of needed tools among the first `show` on the later half; `show` promises 1 - `EPS`."""


class Recalibrator(BackgroundWork):
    """Keeps the map to read levels from up to date; `tick` is called about once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = time.monotonic() + EVERY_S / 10
        self.calibrate: Platt | None = None

    def tick(self) -> None:
        """Start to read the outcomes if it is time; a store in memory is not read."""
        path = self._store.path
        if time.monotonic() < self._due or not isinstance(path, Path) or self._store.trouble:
            return
        self._due = time.monotonic() + EVERY_S
        if not self.is_working:
            self.begin(self._read(path))

    async def _read(self, path: Path) -> None:
        with contextlib.suppress(StorageError):  # the present map stays
            self.calibrate = await asyncio.to_thread(_read_and_fit, path)


def _read_and_fit(path: Path) -> Platt | None:
    with open_store(path) as store:
        return fit_recalibration(discovery_outcomes(store.discoveries))


def fit_recalibration(outcomes: Sequence[DiscoveryOutcome]) -> Platt | None:
    """Return the map to read levels from; None if the gate as shipped is as good."""
    from foretool.retrieval.calibration import platt

    predictions = _predictions(outcomes)
    if len(predictions) < LEAST:
        return None
    before, after = _calibration_errors(predictions)
    return platt(predictions) if after < before else None


def rate_confidence(outcomes: Sequence[DiscoveryOutcome]) -> Confidence:
    """Return the figures that `foretool status` shows."""
    from foretool.retrieval.calibration import conformal_k, coverage

    before, after = _calibration_errors(_predictions(outcomes))
    ranks = [outcome.rank for outcome in outcomes]
    half = len(ranks) // 2
    show = conformal_k(ranks[:half], EPS)
    kept = coverage(ranks[half:], show) if show is not None else 0.0
    return Confidence(len(outcomes), coverage(ranks, WITHIN), before, after, show, kept)


def _predictions(outcomes: Sequence[DiscoveryOutcome]) -> list[tuple[float, float]]:
    """Return what the gate predicted, and whether it was true (1.0) or not."""
    return [
        (outcome.probability, float(outcome.rank is not None and outcome.rank <= WITHIN))
        for outcome in outcomes
        if outcome.probability is not None
    ]


def _calibration_errors(predictions: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the calibration error on the later half: as predicted, and after a map fitted on the earlier half."""
    from foretool.retrieval.calibration import calibration_error, platt

    half = len(predictions) // 2
    fitted, later = platt(predictions[:half]), predictions[half:]
    return calibration_error(later), calibration_error([(fitted(p), true) for p, true in later])


def discovery_outcomes(log: DiscoveryStore, limit: int = 2000) -> list[DiscoveryOutcome]:
    """Return the outcomes of the latest `limit` discoveries, the oldest first. May raise `StorageError`.

    A tool that was called on behalf of a discovery was needed, at its rank. If none was called, and the same
    conversation searched again or called another hidden tool soon after, then the needed tool was not in the answer.
    Discoveries that nothing followed are left out: their outcome is unknown.
    """
    answered = log.answered(limit)[::-1]
    if not answered:
        return []
    oldest = min(each.at for each in answered)
    called = log.first_calls(answered[0].id, oldest)
    missed = _followed([each for each in answered if each.id not in called], log.needs(oldest))
    return [
        DiscoveryOutcome(each.at, each.probability, _rank(each, called.get(each.id)))
        for each in answered
        if each.id in called or each.id in missed
    ]


def _followed(discoveries: Iterable[Discovery], needs: Iterable[Event]) -> set[int]:
    """Return the ids of the discoveries after which their conversation soon needed another tool.

    Each is taken out as soon as that is known, so that many needs do not look at many discoveries.
    """
    pending: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for each in discoveries:
        pending.setdefault((each.session, each.handle), []).append((each.at, each.id))
    for own in pending.values():
        own.sort()
    found: set[int] = set()
    for need in needs:
        if own := pending.get((need.session, need.handle), []):
            soon_before = slice(bisect_left(own, (need.at - FOLLOWS_S,)), bisect_left(own, (need.at,)))
            found.update(id for _, id in own[soon_before])
            del own[soon_before]
    return found


def _rank(discovery: Discovery, tool: str | None) -> int | None:
    return next((match.rank for match in discovery.matches if match.tool == tool), None)
