"""Replays later tasks with the models of a run, each as it was before it could have seen them; refits the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from foretool.learning.encoded_texts import EncodedTexts
from foretool.learning.results import MethodResult, Results, Say
from foretool.learning.timeline import LEAST_REPLAYED, KnownModels, Timeline
from foretool.learning.training.replay import (
    Comparison,
    StepRanks,
    compare_ranks,
    fit_factors,
    rank_called,
    rank_crossed,
    rank_steps,
    steps_with_parts,
)
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import Factors, LearnedModels
from foretool.server.catalog import models
from foretool.server.catalog.search_index import Index
from foretool.storage.records import Artifact, ToolId
from foretool.storage.sql.artifacts import ArtifactStore

if TYPE_CHECKING:
    from foretool.retrieval.rankers.learned import LearnedModel
    from foretool.server.catalog.catalog import Catalog


@dataclass(frozen=True)
class Replay:
    """Ranks later tasks as the proxy would have done with some models."""

    catalog: Catalog
    texts: EncodedTexts | None
    timeline: Timeline
    upstream_of: Mapping[ToolId, str]
    index: Index | None = None
    """Reads the tools as searches do; without it, no wordings take part."""

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], tuple[object, list[StepRanks]]]:
        """The ranks with each set of models: one method is compared with what the last one was compared with."""
        return {}

    @cached_property
    def _pipeline(self) -> Pipeline:
        corpus = (self.index or Index(self.catalog)).update().corpus
        pipeline = Pipeline(corpus, self.texts.meaning(self.catalog, corpus) if self.texts else None)
        pipeline.is_replaying = True
        if self.texts is not None:
            pipeline.may_read = self.texts.has_vectors
        return pipeline

    def pipeline(self, served: Mapping[str, LearnedModel]) -> Pipeline:
        """Return a pipeline that ranks with these models. It is always the same object: use one before asking for the
        next."""
        self._pipeline.learned = LearnedModels(served) if served else None
        return self._pipeline

    def ranks(self, served: Mapping[str, LearnedModel], first: int, last: int) -> list[StepRanks]:
        """Return at which ranks these models put the called tools, for the episodes from place `first` up to `last`."""
        key = (first, last, *sorted((kind, id(model)) for kind, model in served.items()))
        if key not in self._kept:
            episodes = self.timeline.episodes[first:last]
            usage = self.timeline.usage_before(first)
            # The models are kept with the ranks, so that no other model gets the id of one of them.
            self._kept[key] = dict(served), rank_steps(self.pipeline(served), episodes, self.upstream_of, usage)
        return self._kept[key][1]


def describe_gain(compared: Comparison) -> str:
    low, _mean, high = compared.difference
    return (
        f"reciprocal rank {compared.old['mrr']:.3f} -> {compared.new['mrr']:.3f} ({low:+.3f} to {high:+.3f}),"
        f" in the first five {compared.old['top5']:.1%} -> {compared.new['top5']:.1%},"
        f" over {compared.episodes} later tasks"
    )


def describe_no_gain(compared: Comparison, kind: str, old: Artifact | None) -> str:
    """Say why nothing was promoted, and what serves now."""
    serves = f"{kind} {old.number} serves on" if old else "it is not served"
    short = "not better" if old else "not better outside the error"
    if compared.difference[0] > 0.0 and compared.shows_fewer:
        short = "better ranks in the mean, and fewer needed tools among the first five, which answers show"
    return f"{short}: {describe_gain(compared)}; {serves}"


def refit_weights(timeline: Timeline, replay: Replay, known: KnownModels, results: Results, say: Say) -> MethodResult:
    """Fit a factor for each part on episodes that no model has seen; promote the factors if they rank better."""
    kind = models.WEIGHTS
    trial, old = results.begin(kind), results.artifacts.active(kind)
    first = known.places()[-1]
    unseen = timeline.episodes[first:]
    if len(unseen) < LEAST_REPLAYED:
        return trial.skip(f"tasks that no model has seen: {len(unseen)} of the {LEAST_REPLAYED} that it takes")
    say(kind, "replaying", 0.0)
    pipeline = replay.pipeline(known.before(first))
    steps = list(steps_with_parts(pipeline, unseen, replay.upstream_of, timeline.usage_before(first)))
    say(kind, "fitting", 0.5)
    compared = compare_ranks(rank_called(steps, factors_in_use(results.artifacts)), rank_crossed(steps))
    if not compared.is_better:
        return trial.keep(describe_no_gain(compared, kind, old), compared.report())
    encoders = "+".join(head.name for head in pipeline.dense.heads) if pipeline.dense else ""
    fitted = Factors(encoders, fit_factors(steps))
    report = {**compared.report(), "factors": fitted.factors}
    return trial.promote(msgspec.json.encode(fitted), describe_gain(compared), report)


def factors_in_use(artifacts: ArtifactStore) -> Mapping[str, float]:
    active = artifacts.served().get(models.WEIGHTS)
    found: Mapping[str, float] = active.report.get("factors", {}) if active else {}
    return found
