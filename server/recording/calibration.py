"""Whether the confidence of answers holds here: what was said against what came of it, and what follows from that.

Once in a while the outcomes of the recorded discoveries are read. A map from the gate's probability to a better one is
fitted on their earlier half. If the map is closer than the gate on the later half, it is fitted on all outcomes, and
levels are read from it. The gate alone serves until there are enough outcomes, and again when the map no longer helps.

They are read in a thread, over a connection of its own: of a long log that takes tenths of a second, and no call should
wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.storage.discovery_outcomes import discovery_outcomes
from foretool.storage.opening import open_store
from foretool.storage.records import DiscoveryOutcome
from foretool.storage.stores import StorageError, Store

if TYPE_CHECKING:
    from foretool.retrieval.calibration import Platt

EVERY_S: Final = 600.0
LEAST: Final = 200
"""Outcomes worth recalibrating on; fewer say less than the shipped gate."""
WITHIN: Final = 5
"""The gate says that a needed tool is among so many."""
EPS: Final = 0.1
"""Share of needed tools that may be hidden: the promise that `conformal_k` is worked out for."""


class Assured(Struct, frozen=True):
    """What the record says about confidence."""

    verdicts: int
    """Discoveries of which it is known what came."""
    found: float
    """Share of them whose needed tool was among the first five."""
    error: float
    """Expected calibration error of the gate as shipped, over the later half."""
    recalibrated_error: float
    """The same after the map fitted on the earlier half."""
    show: int | None
    """The k for which at most `EPS` of needed tools are hidden, worked out on the earlier half; None if none is."""
    kept: float
    """Share of needed tools among the first `show` on the later half; what `show` promises is 1 - `EPS`."""


class Assurance:
    """See the module; `tick` is called about once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = time.monotonic() + EVERY_S / 10
        self._task: asyncio.Task[None] | None = None
        self.calibrate: Platt | None = None

    def tick(self) -> None:
        """Begin to read the record anew if it is time; what is in memory alone is not worth it."""
        path = self._store.path
        if time.monotonic() < self._due or not isinstance(path, Path):
            return
        self._due = time.monotonic() + EVERY_S
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(path))

    async def finished(self) -> None:
        """Wait for what was begun."""
        if self._task is not None:
            await self._task

    async def _read(self, path: Path) -> None:
        with contextlib.suppress(StorageError):  # the map in force stays
            self.calibrate = await asyncio.to_thread(_fitted, path)


def _fitted(path: Path) -> Platt | None:
    with open_store(path) as store:
        return recalibration(discovery_outcomes(store.discoveries))


def recalibration(read: Sequence[DiscoveryOutcome]) -> Platt | None:
    """The map to read levels from; None where the gate as shipped is as good."""
    from foretool.retrieval.calibration import platt

    said = pairs(read)
    if len(said) < LEAST:
        return None
    before, after = errors(said)
    return platt(said) if after < before else None


def assured(read: Sequence[DiscoveryOutcome]) -> Assured:
    """The figures that `foretool status` shows."""
    from foretool.retrieval.calibration import conformal_k, coverage

    said = pairs(read)
    before, after = errors(said)
    ranks = [outcome.rank for outcome in read]
    half = len(ranks) // 2
    show = conformal_k(ranks[:half], EPS)
    return Assured(
        verdicts=len(read),
        found=coverage(ranks, WITHIN),
        error=before,
        recalibrated_error=after,
        show=show,
        kept=coverage(ranks[half:], show) if show is not None else 0.0,
    )


def pairs(read: Sequence[DiscoveryOutcome]) -> list[tuple[float, float]]:
    """What was said, and whether it came true."""
    return [
        (outcome.probability, float(outcome.rank is not None and outcome.rank <= WITHIN))
        for outcome in read
        if outcome.probability is not None
    ]


def errors(said: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Calibration error on the later half: as said, and after a map fitted on the earlier half."""
    from foretool.retrieval.calibration import calibration_error, platt

    half = len(said) // 2
    fitted, later = platt(said[:half]), said[half:]
    return calibration_error(later), calibration_error([(fitted(p), true) for p, true in later])
