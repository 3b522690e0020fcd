"""Compares the confidence of answers with what happened after them, and recalibrates the gate where that helps.

No single ranking tells how often the tools of this user are found at all, and the log does. From time to time the
outcomes of the recorded discoveries are read, and the probabilities of the gate are mapped to what they have been worth
here; levels and the number of tools follow from the result. A few outcomes move little, because the map is drawn
towards no change. Of the searches with one and the same first tool the latest few count, so that neither a task that
repeats nor a tool that is always called decides for all others. If the latest outcomes are far off from what the
earlier ones promised, confidence has *drifted*: the map is made of the latest ones alone until later outcomes agree
again.

They are read in a thread, over a connection of its own: for a long log that takes tenths of a second, and no call
should wait for it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.calibration import AS_SHIPPED, Recalibration, calibration_error, conformal_k, coverage, platt
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.opening import open_store
from foretool.storage.places import StorePlace
from foretool.storage.records import Discovery, DiscoveryOutcome, Event, ToolId
from foretool.storage.sql.discoveries import DiscoveryStore
from foretool.storage.store import Store

EVERY_S: Final = 600.0
_LEAST: Final = 200
"""Fewer outcomes show no drift."""
_WINDOW: Final = 600
"""The latest outcomes that a map is fitted on: what was true long ago may not be any more."""
_OF_ONE_TOOL: Final = 5
"""So many of the latest outcomes with one and the same first tool count."""
RECENT: Final = 100
"""The latest outcomes that show whether confidence has drifted."""
_DRIFTED: Final = 3.0
"""Confidence has drifted if it is off by more than this many standard errors."""
WITHIN: Final = 5
"""The gate predicts that a needed tool is among the first five, or among all that were shown if these are fewer."""
SUFFICES: Final = 0.7
"""A client that searches again and rates what it sees at this or more had found what it needed (ITR 3.7, tau)."""
_LACKS: Final = 0.5
"""One that rates it lower than this had not; ratings between the two say nothing."""
EPS: Final = 0.1
"""Share of needed tools that may be hidden: `conformal_k` keeps this promise."""
_FOLLOWS_S: Final = 1800.0
"""A need later than this has nothing to do with the discovery."""


class Confidence(Struct, frozen=True):
    """How often searches were right, compared with how sure they were."""

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

    state: State = "shipped"
    said: float = 0.0
    """What answers promised over the latest `RECENT` outcomes, in the mean, with the map of the earlier ones."""
    came_true: float = 0.0
    """Share of these outcomes whose needed tool was shown."""


State = Literal["shipped", "recalibrated", "drifted"]
"""What confidence is read from: the shipped gate, because no outcome is known; all outcomes; or the latest ones alone,
because the earlier ones no longer hold."""


class Calibration(Struct, frozen=True):
    """How the gate's probabilities are corrected now, and how well they match the latest outcomes."""

    state: State = "shipped"
    map: Recalibration = AS_SHIPPED
    """Turns the gate's probabilities into better ones."""
    said: float = 0.0
    came_true: float = 0.0


class Recalibrator(BackgroundWork):
    """Keeps the calibration up to date; `tick` is called about once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = time.monotonic()
        self.calibration = Calibration()

    def tick(self) -> None:
        """Start to read the outcomes if it is time; a store in memory is not read."""
        path = self._store.path
        is_due = time.monotonic() >= self._due or self.has_failed
        if not is_due or isinstance(path, str) or self._store.trouble:
            return
        self._due = time.monotonic() + EVERY_S
        if not self.is_working:
            self.begin(self._read(path))

    async def _read(self, path: StorePlace) -> None:
        self.calibration = await asyncio.to_thread(_read_and_fit, path)


def _read_and_fit(path: StorePlace) -> Calibration:
    with open_store(path) as store:
        return read_calibration(store.discoveries)


def read_calibration(log: DiscoveryStore) -> Calibration:
    """Return what to read confidence from, by the log. May raise `StorageError`."""
    return fit_calibration(discovery_outcomes(log))


def fit_calibration(outcomes: Sequence[DiscoveryOutcome]) -> Calibration:
    """Return what to read confidence from, by the latest outcomes, the oldest first."""
    latest = _leave_out_repeated(outcomes)[-_WINDOW:]
    predictions = _predictions(latest)
    if not predictions:
        return Calibration()
    if len(predictions) < _LEAST:
        return Calibration("recalibrated", _fit(latest))
    said, came_true, errors = _drift(predictions)
    if abs(errors) > _DRIFTED:
        return Calibration("drifted", _fit(latest[-RECENT:]), said, came_true)
    return Calibration("recalibrated", _fit(latest), said, came_true)


def _leave_out_repeated(outcomes: Sequence[DiscoveryOutcome]) -> list[DiscoveryOutcome]:
    """Return the outcomes without the older ones of first tools that have more than `_OF_ONE_TOOL`."""
    kept, times = list[DiscoveryOutcome](), Counter[ToolId]()
    for outcome in reversed(outcomes):
        times[outcome.first] += 1
        if times[outcome.first] <= _OF_ONE_TOOL:
            kept.append(outcome)
    return kept[::-1]


def _fit(outcomes: Sequence[DiscoveryOutcome]) -> Recalibration:
    first = [
        (outcome.first_probability, float(outcome.rank == 1))
        for outcome in outcomes
        if outcome.first_probability is not None
    ]
    return Recalibration(platt(first), platt(_predictions(outcomes)))


def _drift(predictions: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return what the latest outcomes were predicted to be by the map of the earlier ones, in the mean, what came true
    of it, and by how many standard errors the two differ."""
    recent = predictions[-RECENT:]
    earlier = predictions[: -len(recent)]
    fitted = platt(earlier)
    said = [fitted(probability) for probability, _ in recent]
    # The map itself has an error, which shrinks with the number of outcomes that it was fitted on.
    spread = sqrt(sum(p * (1.0 - p) for p in said) * (1.0 + len(recent) / len(earlier)))
    true = sum(each for _, each in recent)
    return sum(said) / len(said), true / len(recent), (true - sum(said)) / max(spread, 1.0)


def rate_confidence(outcomes: Sequence[DiscoveryOutcome]) -> Confidence:
    """Return the figures that `foretool status` shows."""
    before, after = _calibration_errors(_predictions(outcomes))
    now = fit_calibration(outcomes)
    ranks = [outcome.rank for outcome in outcomes]
    half = len(ranks) // 2
    show = conformal_k(ranks[:half], EPS)
    kept = coverage(ranks[half:], show) if show is not None else 0.0
    found = coverage(ranks, WITHIN)
    return Confidence(len(outcomes), found, before, after, show, kept, now.state, now.said, now.came_true)


def _predictions(outcomes: Sequence[DiscoveryOutcome]) -> list[tuple[float, float]]:
    """Return what the gate predicted, and whether it was true (1.0) or not."""
    return [
        (outcome.probability, float(outcome.rank is not None and outcome.rank <= WITHIN))
        for outcome in outcomes
        if outcome.probability is not None
    ]


def _calibration_errors(predictions: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the calibration error on the later half: as predicted, and after a map fitted on the earlier half."""
    half = len(predictions) // 2
    fitted, later = platt(predictions[:half]), predictions[half:]
    return calibration_error(later), calibration_error([(fitted(p), true) for p, true in later])


def discovery_outcomes(log: DiscoveryStore, limit: int = 2000) -> list[DiscoveryOutcome]:
    """Return the outcomes of the latest `limit` discoveries, the oldest first. May raise `StorageError`.

    A tool that was called on behalf of a discovery was needed, at its rank. If none was called, and the same
    conversation soon called a tool that a later search found, or that none did, then the needed tool was not in the
    answer. A client that searches again may say how far what it sees suffices: if it does, the needed tool was there,
    at the last rank that counts; if it does not, it was not. Of the others nobody knows what they were for: a search
    that no call followed is not a wrong one.
    """
    answered = log.answered(limit)[::-1]
    if not answered:
        return []
    oldest = min(each.at for each in answered)
    called = log.first_calls(answered[0].id, oldest)
    rated = {(each.session, each.handle, each.at): each.sufficiency for each in answered}
    served = _served([each for each in answered if each.id not in called], log.needs(oldest), rated)
    found = []
    for each in answered:
        if each.id in called:
            found.append(_outcome(each, _rank(each, called[each.id])))
        elif (does_serve := served.get(each.id)) is not None:
            # What a rating calls sufficient may be any of the tools that were shown.
            outcome = _outcome(each, min(len(each.matches), WITHIN) if does_serve else None)
            found.append(replace(outcome, first_probability=None) if does_serve else outcome)
    return found


def _outcome(discovery: Discovery, rank: int | None) -> DiscoveryOutcome:
    first = discovery.matches[0].tool
    return DiscoveryOutcome(discovery.at, discovery.probability, rank, first, discovery.first_probability)


def _served(
    discoveries: Iterable[Discovery], needs: Iterable[Event], rated: Mapping[tuple[str, str, float], float | None]
) -> dict[int, bool]:
    """Return by id whether a discovery that led to no call served, as far as what its conversation did next tells.
    `rated`: how far what it saw sufficed, as the client said when it searched again.

    Each is taken out as soon as that is known, so that many needs do not look at many discoveries.
    """
    pending: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for each in discoveries:
        pending.setdefault((each.session, each.handle), []).append((each.at, each.id))
    for own in pending.values():
        own.sort()
    found: dict[int, bool] = {}
    for need in sorted(needs, key=lambda each: each.at):
        if not (own := pending.get((need.session, need.handle), [])):
            continue
        before = bisect_left(own, (need.at,))
        soon_before = own[bisect_left(own, (need.at - _FOLLOWS_S,)) : before]
        if need.kind == "call":
            decided = {id: False for _, id in soon_before if not 0 < need.discovery <= id}
        else:
            said = rated.get((need.session, need.handle, need.at))
            is_clear = said is not None and (said >= SUFFICES or said < _LACKS)
            decided = {id: said is not None and said >= SUFFICES for _, id in soon_before[-1:] if is_clear}
        found |= decided
        own[:before] = [each for each in soon_before if each[1] not in decided]
    return found


def _rank(discovery: Discovery, tool: str | None) -> int | None:
    return next((match.rank for match in discovery.matches if match.tool == tool), None)
