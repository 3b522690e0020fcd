"""How well tools are found: what the proxy answers with, beside textbook BM25 and one encoder, with intervals.

Textbook BM25 (`bm25_scores`) reads name and description as one field. Rankings are measured against it; it serves
nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log
from statistics import fmean
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.desk.replay.encoders import OpenedEncoders
from foretool.desk.replay.queries import NeededTools
from foretool.learning.results import interval, paired_difference
from foretool.retrieval.words import terms
from foretool.server.app import App
from foretool.server.catalog import models
from foretool.server.catalog.search import Finds
from foretool.server.config.settings import Settings
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery.arguments import Arguments
from foretool.server.ledger.effects import Difference
from foretool.storage.records import Tool, ToolId, Usage

if TYPE_CHECKING:
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.retrieval.rankers.learned import LearnedModels


_K1 = 1.2
_B = 0.75


def bm25_scores(tools: Sequence[Tool]) -> Callable[[str], list[float]]:
    """Return what scores every tool for a text, in the order of `tools`."""
    rows = [json.loads(tool.definition) for tool in tools]
    counts = [Counter(terms(f"{row['name']} {row.get('description') or ''}")) for row in rows]
    frequency = Counter(term for count in counts for term in count)
    mean = fmean([count.total() for count in counts] or [1.0]) or 1.0

    def score(wanted: Sequence[str], count: Counter[str]) -> float:
        norm = _K1 * (1 - _B + _B * count.total() / mean)
        idf = {term: log(1 + (len(tools) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in wanted}
        return sum(idf[term] * count[term] * (_K1 + 1) / (count[term] + norm) for term in wanted)

    def scores(text: str) -> list[float]:
        wanted = terms(text)
        return [score(wanted, count) for count in counts]

    return scores


_DEPTH: Final = 10
"""How many tools of a ranking are read."""
BM25: Final = "BM25"
SERVED: Final = "served"
Progress = Callable[[float], None]

Rank = Callable[[NeededTools], list[ToolId]]
"""Returns the best `_DEPTH` tools for a query, best first."""


class Interval(Struct, frozen=True):
    """A mean between the ends of its 95 % interval."""

    low: float
    mean: float
    high: float


class RankingFigures(Struct, frozen=True):
    """How well one ranking finds what the queries need."""

    ranking: str
    first: Interval
    """The share of a query's tools that stand first; at most 1 / n of n tools."""
    in_5: Interval
    in_10: Interval
    reciprocal_rank: Interval
    """1 / place of the first needed tool; 0 beyond ten."""
    served_over_it: Difference
    """What `served` has among five beyond this ranking."""


class Rankings:
    """The rankings of one catalog that are compared."""

    def __init__(self, app: App, settings: Settings, finds: Finds) -> None:
        """`finds` says which tools a search may find. Opens the encoders of the settings; words alone rank where that
        fails."""
        self._app = app
        self._finds = finds
        models.install_wordings(app.search, app.store)
        self._corpus = app.search.update_corpus(inf)
        OpenedEncoders().install(settings, app, app.store)
        self._dense = app.search.encoders
        self._kept = models.read_models(app.store)
        self._opened: dict[tuple[int, ...], LearnedModels | None] = {}

    @property
    def tools(self) -> list[Tool]:
        """The tools that may be found."""
        return [each for each in self._app.catalog.tools() if self._finds(each)]

    def compare(self, queries: Sequence[NeededTools], progress: Progress = lambda share: None) -> list[RankingFigures]:
        """Return the figures of every ranking over the same queries, the one that is served last."""
        ranks = dict(self._ranks())
        places: dict[str, list[list[int]]] = {name: [] for name in ranks}
        for number, query in enumerate(queries, 1):
            for name, rank in ranks.items():
                places[name].append(_places(rank(query), query.needs))
            progress(number / len(queries))
        needed = [len(each.needs) for each in queries]
        served = _recalls(places[SERVED], needed, 5)
        return [_figures(name, found, needed, served) for name, found in places.items()]

    def _ranks(self) -> Iterator[tuple[str, Rank]]:
        yield BM25, self._textbook()
        if (dense := self._dense) is not None:
            yield dense.heads[0].name, self._one_encoder(dense)
        yield "words", lambda query: self._pipeline(None, None, query, {})
        if dense is not None:
            yield "words and encoders", lambda query: self._pipeline(dense, None, query, {})
        yield SERVED, lambda query: self._pipeline(dense, self._learned(query.at), query, query.usage)

    def _textbook(self) -> Rank:
        tools = self.tools
        score_all = bm25_scores(tools)

        def rank(query: NeededTools) -> list[ToolId]:
            scores = score_all(query.text)
            order = sorted((at for at, score in enumerate(scores) if score > 0), key=lambda at: -scores[at])
            return [tools[at].id for at in order[:_DEPTH]]

        return rank

    def _one_encoder(self, dense: DenseEnsemble) -> Rank:
        head, corpus = dense.heads[0], self._corpus
        may = {tool.id for tool in self.tools}

        def rank(query: NeededTools) -> list[ToolId]:
            near: Sequence[float] = head.nearness(head.encoder.queries([query.text]))[0].tolist()
            order = sorted(range(len(near)), key=lambda slot: -near[slot])
            return [tool for slot in order if (tool := corpus.ids[slot]) in may and tool is not None][:_DEPTH]

        return rank

    def _pipeline(
        self,
        dense: DenseEnsemble | None,
        learned: LearnedModels | None,
        query: NeededTools,
        usage: Mapping[ToolId, Usage],
    ) -> list[ToolId]:
        from foretool.retrieval.pipeline import Pipeline

        asked = discovery_arguments.query(Arguments(task=query.text), (), ())
        ranking = Pipeline(self._corpus, dense, learned).rank(asked, usage, len(self._corpus))
        tools = ((each.tool, self._app.catalog.get(each.tool)) for each in ranking.ranked)
        return [name for name, tool in tools if tool is not None and self._finds(tool)][:_DEPTH]

    def _learned(self, at: float) -> LearnedModels | None:
        """Return the models that had been promoted by a time."""
        kept = {
            kind: found
            for kind, each in self._kept.items()
            if (found := [(artifact, data) for artifact, data in each if artifact.promoted_at <= at])
        }
        key = tuple(found[0][0].id for found in kept.values())
        if key not in self._opened:
            opened = models.open_models(kept)
            self._opened[key] = opened.learned
        return self._opened[key]


def _places(ranked: Sequence[ToolId], needs: Sequence[frozenset[ToolId]]) -> list[int]:
    """Return where each need is met first, in rising order; needs that are not met are left out."""
    found = (next((place for place, tool in enumerate(ranked, 1) if tool in need), 0) for need in needs)
    return sorted(place for place in found if place)


def _recalls(places: Sequence[Sequence[int]], needed: Sequence[int], k: int) -> list[float]:
    return [sum(place <= k for place in each) / count for each, count in zip(places, needed, strict=True)]


def _figures(
    name: str, places: Sequence[Sequence[int]], needed: Sequence[int], served: Sequence[float]
) -> RankingFigures:
    low, mean, high = paired_difference(served, _recalls(places, needed, 5))
    first, in_5, in_10 = (_interval(_recalls(places, needed, k)) for k in (1, 5, 10))
    reciprocal = _interval([1.0 / each[0] if each else 0.0 for each in places])
    return RankingFigures(name, first, in_5, in_10, reciprocal, Difference(low, mean, high))


def _interval(values: Sequence[float]) -> Interval:
    low, high = interval(values)
    return Interval(round(low, 4), round(fmean(values), 4), round(high, 4))
