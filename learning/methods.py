"""Trains one method, compares it on later tasks with what serves now, and promotes what is better outside the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from foretool.learning.list_growth import ListGrowth
    from foretool.learning.training import Material, Method
    from foretool.learning.training.list_growth import Gain
    from foretool.retrieval.rankers.learned import LearnedModel


class MethodJudgement(NamedTuple):
    """How a method did on later tasks."""

    ranks: Comparison
    lists: Gain | None
    """What growing lists cost; None if that decides nothing, or if there were too few tasks to tell."""
    trained: list[TrialModel]
    """The models that were trained for the replay."""


@dataclass(frozen=True)
class MethodPromotion:
    """Trains and judges one method after the other; what is promoted takes part when the next one is judged."""

    timeline: Timeline
    replay: Replay
    known: KnownModels
    growth: ListGrowth
    results: Results
    material: Callable[[int], Material]
    """What may be learned from the episodes before a place."""
    checkpoints: Checkpoints

    def learn(self, kind: str, method: Method, say: Say) -> MethodResult:
        """Train on earlier tasks, replay later ones, and if that shows a gain train once more on all of them."""
        trial, old = self.results.begin(kind), self.results.comparable(kind)
        if len(self.timeline) < method.minimum:
            return trial.skip(f"{len(self.timeline)} tasks on record; it takes {method.minimum}")
        parts = self.timeline.parts_to_replay(old)
        if not parts:
            return trial.skip(self.timeline.describe_too_few(kind, old))
        known, weighed = self.results.to_continue(kind, old)
        try:
            found = self.judge(kind, method, parts, say, known, old)
            report: dict[str, Any] = {"lists": found.lists.report()} if found.lists else {}
            report |= found.ranks.report()
            if not is_promoted(found, old):
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
        self, kind: str, method: Method, parts: Sequence[tuple[int, int]], say: Say, earlier: bytes = b"",
        replaces: Artifact | None = None,
    ) -> MethodJudgement:  # fmt: skip
        """Compare what serves with and without new models: in ranks and, where these leave it open, in what growing
        lists cost. `earlier`: a model that has weighed its parts on enough of the same log; `replaces`: the one of the
        same method that serves."""
        before: list[StepRanks] = []
        after: list[StepRanks] = []
        trained: list[TrialModel] = []
        served: list[tuple[dict[str, LearnedModel], dict[str, LearnedModel]]] = []
        for number, (first, last) in enumerate(parts):
            say(kind, "training for the replay", number / len(parts))
            given = replace(self.material(first), is_trial=True, earlier=earlier)
            data = earlier = method.train(given, lambda what, share: say(kind, what, share))
            new = models.open_model(kind, data)
            say(kind, "replaying", number / len(parts))
            old = self.known.before(first)
            both = {**old, kind: new}
            before += self.replay.ranks(old, first, last)
            after += self.replay.ranks(both, first, last)
            served.append((old, both))
            trained.append((first, data))
        ranks = compare_ranks(before, after)
        if replaces is not None or ranks.is_better or not ranks.may_follow:
            return MethodJudgement(ranks, None, trained)
        say(kind, "replaying lists", 1.0)
        played = [
            (self.growth.segment(old, first, last), self.growth.segment(both, first, last))
            for (old, both), (first, last) in zip(served, parts, strict=True)
        ]
        return MethodJudgement(ranks, self.growth.compare(played), trained)


def is_promoted(found: MethodJudgement, old: Artifact | None) -> bool:
    """Return whether a model is better outside the error in its ranks, or better there in the mean and cheaper in its
    lists outside the error. A model that replaces one of its own method need only be better in the mean."""
    if found.ranks.is_better:
        return True
    return found.ranks.may_follow and (old is not None or (found.lists is not None and found.lists.is_sure))
