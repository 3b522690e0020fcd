"""Replays later tasks with the models of a run, each as it was before it could have seen them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.training.replay import Comparison, StepRanks, rank_steps
from foretool.server.catalog.search import Index
from foretool.server.learning.encoded_texts import EncodedTexts
from foretool.server.learning.timeline import Timeline
from foretool.storage.records import Artifact, ToolId

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

    @cached_property
    def _pipeline(self) -> Pipeline:
        corpus = Index(self.catalog).update().corpus
        return Pipeline(corpus, self.texts.meaning(self.catalog, corpus) if self.texts else None)

    def pipeline(self, served: Mapping[str, LearnedModel]) -> Pipeline:
        """The ranking with these models; there is one pipeline, so that an earlier result changes with it."""
        self._pipeline.learned = LearnedModels(served) if served else None
        return self._pipeline

    def ranks(self, served: Mapping[str, LearnedModel], first: int, last: int) -> list[StepRanks]:
        """Where the called tools of the episodes from one place to another stand with these models."""
        episodes = self.timeline.episodes[first:last]
        return rank_steps(self.pipeline(served), episodes, self.upstream_of, self.timeline.usage_before(first))


def describe_gain(compared: Comparison) -> str:
    """The figures of a comparison in words."""
    low, _mean, high = compared.difference
    return (
        f"reciprocal rank {compared.old['mrr']:.3f} -> {compared.new['mrr']:.3f} ({low:+.3f} to {high:+.3f}),"
        f" in the first five {compared.old['top5']:.1%} -> {compared.new['top5']:.1%},"
        f" over {compared.episodes} later tasks"
    )


def describe_no_gain(compared: Comparison, kind: str, old: Artifact | None) -> str:
    """Says why nothing was promoted, and what serves now."""
    serves = f"{kind} {old.number} serves on" if old else "it is not served"
    short = "not better" if old else "not better outside the error"
    return f"{short}: {describe_gain(compared)}; {serves}"
