"""Refits the weights of the parts of a score on the log, with the shipped weights as prior."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from foretool.retrieval.rankers.learned import Factors
from foretool.retrieval.training import factors
from foretool.retrieval.training.replay import compare
from foretool.server.catalog import models
from foretool.server.learning.replay import Replay, describe_gain, describe_no_gain
from foretool.server.learning.results import MethodResult, Results, Say
from foretool.server.learning.timeline import LEAST_REPLAYED, KnownModels, Timeline
from foretool.storage.stores import ArtifactStore


def refit_weights(timeline: Timeline, replay: Replay, known: KnownModels, results: Results, say: Say) -> MethodResult:
    """Fits a factor for each part on episodes that no model has seen; promotes the factors if they rank better."""
    kind = models.WEIGHTS
    trial, old = results.begin(kind), results.artifacts.active(kind)
    first = known.places()[-1]
    unseen = timeline.episodes[first:]
    if len(unseen) < LEAST_REPLAYED:
        return trial.skip(f"{len(unseen)} tasks that no model has seen; it takes {LEAST_REPLAYED}")
    say(kind, "replaying", 0.0)
    pipeline = replay.pipeline(known.before(first))
    steps = list(factors.score_parts(pipeline, unseen, replay.upstream_of, timeline.usage_before(first)))
    say(kind, "fitting", 0.5)
    compared = compare(factors.rank_called(steps, factors_in_use(results.artifacts)), factors.rank_crossed(steps))
    if not compared.is_better:
        return trial.keep(describe_no_gain(compared, kind, old), compared.report())
    encoders = "+".join(head.name for head in pipeline.dense.heads) if pipeline.dense else ""
    fitted = Factors(encoders, factors.fit(steps))
    report = {**compared.report(), "factors": fitted.factors}
    return trial.promote(msgspec.json.encode(fitted), describe_gain(compared), report)


def factors_in_use(artifacts: ArtifactStore) -> Mapping[str, float]:
    """The factors by part that the ranking multiplies with now."""
    active = artifacts.active(models.WEIGHTS)
    found: Mapping[str, float] = active.report.get("factors", {}) if active else {}
    return found
