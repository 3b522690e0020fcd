"""Finds what a run that was ended had already learned, so that the next run loses the work of one method at most.

The result of a method is in the store as soon as it is known. Later methods also need the models that were trained
for the replay. These stand in a folder beside the storage file until a run
has ended well; for a database, in a folder of this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from foretool.learning.results import MethodResult
from foretool.learning.timeline import Timeline
from foretool.storage.places import StorePlace, local_file
from foretool.storage.records import Artifact
from foretool.storage.sql.artifacts import ArtifactStore

_RESUME_S: Final = 86_400.0
"""A run that was ended longer ago than this is not continued: the log has moved on."""
_NEWS: Final = 0.05
"""A run is continued if the tasks on record have grown by no more than this share since."""
TRIALS: Final = "trials"
"""The key of a report that says which models were trained for the replay."""

TrialModel = tuple[int, bytes]
"""The place in the timeline up to which a model has seen episodes, and the model."""


def is_unfinished(history: Iterable[Artifact], run: str, encoders: str, now: float) -> bool:
    """Return whether the latest run with these encoders was ended lately, after it had learned something. `history`:
    records of learning, the newest first."""
    newest = next(iter(history), None)
    return (
        newest is not None
        and newest.kind != run
        and abs(now - newest.created_at) <= _RESUME_S
        and newest.report.get("encoders") == encoders
    )


class Checkpoints:
    """What a run that was ended had learned, so that the next run over the same store does not learn it again. `done`:
    its results by kind, empty without such a run."""

    def __init__(self, place: StorePlace | str, artifacts: ArtifactStore, timeline: Timeline, run: str) -> None:
        """`run`: the kind of the record that a run leaves at its end."""
        file = local_file(place)
        self._folder = file.with_name(f"{file.name}.unfinished") if file is not None else None
        self._artifacts = artifacts
        self._timeline = timeline
        self._run = run

    def done(self, stamp: Mapping[str, Any], now: float) -> dict[str, Artifact]:
        """Return the newest artifact of each kind since the last run that came to its end. `stamp`: which tasks this
        run has seen."""
        found: dict[str, Artifact] = {}
        for each in self._artifacts.history():
            if each.kind == self._run:
                break
            if self._fits(each, stamp, now):
                found.setdefault(each.kind, each)
        return found

    def _fits(self, artifact: Artifact, stamp: Mapping[str, Any], now: float) -> bool:
        seen = artifact.report
        if abs(now - artifact.created_at) > _RESUME_S or any(
            seen.get(key) != stamp.get(key) for key in ("imported", "encoders")
        ):
            return False
        now_known = int(stamp["episodes"])
        return 0 <= now_known - int(seen.get("episodes", 0)) <= _NEWS * now_known

    def keep(self, kind: str, trained: Sequence[TrialModel]) -> list[list[Any]]:
        """Keep the models that were trained for a replay; return what their method's report says of them."""
        if self._folder is None:
            return []
        told: list[list[Any]] = []
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for place, data in trained:
                digest = hashlib.sha256(data).hexdigest()
                part = self._folder / f"{kind}-{digest[:16]}.part"
                handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                part.replace(part.with_suffix(".model"))
                first = self._timeline.episodes[place]
                told.append([first.at, first.key, digest])
        return told

    def trials(self, artifact: Artifact) -> list[TrialModel] | None:
        """Return the models that were trained for the replay of a promoted one; None if one is missing or damaged, or
        its place is gone."""
        told = artifact.report.get(TRIALS, ())
        if self._folder is None or not told:
            return None
        place_of = {(each.at, each.key): place for place, each in reversed(list(enumerate(self._timeline.episodes)))}
        found: list[TrialModel] = []
        for at, key, digest in told:
            try:
                data = (self._folder / f"{artifact.kind}-{digest[:16]}.model").read_bytes()
            except OSError:
                return None
            if hashlib.sha256(data).hexdigest() != digest or (at, key) not in place_of:
                return None
            found.append((place_of[at, key], data))
        return found

    def clear(self) -> None:
        """Remove the kept models: the run has ended well, or another one begins from the start."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def describe_done(artifact: Artifact) -> MethodResult:
    """Return the result of a method that an earlier run had finished."""
    outcome = "promoted" if artifact.promoted_at else "kept"
    reason = f"{artifact.report.get('reason', outcome)} (from the run that was ended before)"
    return MethodResult(artifact.kind, outcome, reason, artifact.report, artifact.number)
