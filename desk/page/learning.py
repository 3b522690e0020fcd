"""Learning runs: what each method was, what it became, and which model serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from foretool.server.config.loader import Config
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Artifact

_SHOWN: Final = 200
"""How many trained models are listed."""


class Lesson(Struct, frozen=True):
    """One model that was trained, and how it compared with the one that served."""

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
    """Everything that one learning run trained."""

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
    """Return what a report says, as far as it says it."""
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
