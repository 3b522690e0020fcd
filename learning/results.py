"""Says how sure a result is, and writes down what comes of each method: the model with its report if it is promoted,
else the report alone. Learning what fills lists needs both without numpy, so nothing heavy is imported."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from msgspec import Struct

from foretool.storage.records import Artifact
from foretool.storage.sql.artifacts import ArtifactStore

WEIGHED: Final = "weighed"
"""The key of a report that says on how many tasks a model weighed its parts."""

RESAMPLES: Final = 1000
SEED: Final = 7

Say = Callable[[str, str, float], None]
"""Reports progress: which method, what it is doing, and the share of it that is done, 0 to 1."""


class MethodResult(Struct, frozen=True, rename={"reason": "said"}):
    kind: str
    outcome: str
    """`promoted`, `kept` (the model in use stays), or `skipped`."""
    reason: str
    """Why, in words."""
    report: dict[str, Any] = {}
    number: int = 0
    """The number of the artifact that was written, 0 if none was."""


class Results:
    """The artifacts that one run reads and writes, each new one stamped with what the run has seen."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        stamp: Mapping[str, Any],
        encoders: str,
        now: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`encoders`: the names of the encoders in use, joined by `+`; `check` raises if nothing may be written any
        more."""
        self.artifacts = artifacts
        self.check = check
        self.encoders = encoders
        self.stamp = {**stamp, "encoders": encoders}
        self.now = now

    def begin(self, kind: str) -> Trial:
        """Start to measure how long a method takes."""
        return Trial(kind, self)

    def comparable(self, kind: str) -> Artifact | None:
        """Return the model in use, unless it was trained with other encoders, whose vectors it can no longer be
        given."""
        old = self.artifacts.active(kind)
        return old if old is None or old.report.get("encoders", "") in ("", self.encoders) else None

    def to_continue(self, kind: str, old: Artifact | None) -> tuple[bytes, int]:
        """Return the model in use and the number of tasks on which it weighed its parts; (b"", 0) if there is none, or
        it weighed them on less than half of the tasks that there are now."""
        if old is None or old.report.get("encoders", "") != self.encoders:
            return b"", 0
        weighed = int(old.report.get(WEIGHED, 0))
        if not 0 < self.stamp["episodes"] <= 2 * weighed:
            return b"", 0
        return next(((data, weighed) for each, data in self.artifacts.load_intact(kind) if each == old), (b"", 0))


class Trial:
    """One method in one run, from its beginning to its result."""

    def __init__(self, kind: str, results: Results) -> None:
        self._kind, self._results = kind, results
        self._started = time.perf_counter()

    def skip(self, reason: str) -> MethodResult:
        """Return the result of a method that learned nothing, without a record."""
        return MethodResult(self._kind, "skipped", reason)

    def keep(self, reason: str, report: Mapping[str, Any]) -> MethodResult:
        """Write the report down; the model in use stays."""
        return self._finish("kept", reason, b"", report)

    def promote(self, data: bytes, reason: str, report: Mapping[str, Any]) -> MethodResult:
        """Write the model down and put it into use."""
        return self._finish("promoted", reason, data, report)

    def _finish(self, outcome: str, reason: str, data: bytes, report: Mapping[str, Any]) -> MethodResult:
        results = self._results
        results.check()
        took_s = round(time.perf_counter() - self._started, 1)
        whole = {**results.stamp, **report, "took_s": took_s, "reason": reason}
        number = results.artifacts.add(self._kind, data, whole, promote=outcome == "promoted", at=results.now).number
        return MethodResult(self._kind, outcome, reason, whole, number)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean."""
    draw = random.Random(SEED).choices  # noqa: S311 (resampling, not a secret)
    means = sorted(fmean(draw(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def paired_difference(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> tuple[float, float, float]:
    """Return the mean difference over the same queries: lower end of the 95 % interval, mean, upper end; 0 without
    queries."""
    if not ours:
        return 0.0, 0.0, 0.0
    low, high = interval([a - b for a, b in zip(ours, theirs, strict=True)])
    return round(low, digits), round(fmean(ours) - fmean(theirs), digits), round(high, digits)
