"""Trains one method, compares it on later tasks with what serves now, and promotes what is better outside the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from foretool.learning.checkpoints import TRIALS, Checkpoints, TrialModel
from foretool.learning.replay import Replay, describe_gain, describe_no_gain
from foretool.learning.results import WEIGHED, MethodResult, Results, Say
from foretool.learning.timeline import KnownModels, Timeline
from foretool.learning.training import TooLittle
from foretool.learning.training.replay import Comparison, StepRanks, compare_ranks
from foretool.server.catalog import models
from foretool.storage.records import Artifact

if TYPE_CHECKING:
    from foretool.learning.training import Material, Method


class MethodJudgement(NamedTuple):
    """How a method's new models ranked later tasks, beside what serves now."""

    ranks: Comparison
    trained: list[TrialModel]
    """The models that were trained for the replay."""


@dataclass(frozen=True)
class MethodPromotion:
    """Trains and judges one method after the other; what is promoted takes part when the next one is judged."""

    timeline: Timeline
    replay: Replay
    known: KnownModels
    results: Results
    material: Callable[[int], Material]
    """What may be learned from the episodes before a place."""
    checkpoints: Checkpoints

    def learn(self, kind: str, method: Method, say: Say) -> MethodResult:
        """Train on earlier tasks, replay later ones, and if that shows a gain train once more on all of them."""
        trial, old = self.results.begin(kind), self.results.comparable(kind)
        if len(self.timeline) < method.minimum:
            return trial.skip(f"tasks to learn from: {len(self.timeline)} of the {method.minimum} that it takes")
        parts = self.timeline.parts_to_replay(old)
        if not parts:
            return trial.skip(self.timeline.describe_too_few(kind, old))
        known, weighed = self.results.to_continue(kind, old)
        try:
            found = self.judge(kind, method, parts, say, known)
            report = found.ranks.report()
            if not is_promoted(found.ranks, old):
                return trial.keep(describe_no_gain(found.ranks, kind, old), report)
            whole = replace(self.material(len(self.timeline)), earlier=found.trained[-1][1] if found.trained else b"")
            data = method.train(whole, lambda what, share: say(kind, what, share))
        except TooLittle as error:
            return trial.skip(str(error))
        self.remember(kind, found.trained)
        report |= {
            "bytes": len(data),
            WEIGHED: weighed or len(self.timeline),
            TRIALS: self.checkpoints.keep(kind, found.trained),
        }
        return trial.promote(data, describe_gain(found.ranks), report)

    def remember(self, kind: str, trained: Sequence[TrialModel]) -> None:
        """Let models that were trained for a replay take part when the next methods are judged."""
        for place, data in trained:
            self.known.add(kind, place, models.open_model(kind, data))

    def judge(
        self, kind: str, method: Method, parts: Sequence[tuple[int, int]], say: Say, earlier: bytes = b""
    ) -> MethodJudgement:
        """Compare what serves with and without new models. `earlier`: a model that has weighed its parts on enough of
        the same log."""
        before: list[StepRanks] = []
        after: list[StepRanks] = []
        trained: list[TrialModel] = []
        for number, (first, last) in enumerate(parts):
            say(kind, "training for the replay", number / len(parts))
            given = replace(self.material(first), is_trial=True, earlier=earlier)
            data = earlier = method.train(given, lambda what, share: say(kind, what, share))
            new = models.open_model(kind, data)
            say(kind, "replaying", number / len(parts))
            old = self.known.before(first)
            before += self.replay.ranks(old, first, last)
            after += self.replay.ranks({**old, kind: new}, first, last)
            trained.append((first, data))
        return MethodJudgement(compare_ranks(before, after), trained)


def is_promoted(ranks: Comparison, old: Artifact | None) -> bool:
    """Return whether a model ranks better outside the error. One that replaces another of its own method need only be
    better in the mean."""
    return ranks.is_better or (old is not None and ranks.may_follow)
