"""The tools that a ranking searches, with the encoders that take part, and textbook BM25 over them as the baseline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from statistics import fmean

from bench.kept_encoder import KeptEncoder
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
from foretool.retrieval.words import terms
from foretool.storage.records import Tool, ToolId

DEPTH = 50
"""How many tools a method answers with."""
Search = Callable[[str], list[ToolId]]
OpenEncoders = Callable[[str], list[KeptEncoder]]
"""Opens the encoders that a setting names."""


@dataclass(frozen=True)
class Pool:
    """The tools that are searched, and the encoders that search them."""

    tools: Sequence[Tool]
    texts: Mapping[str, str]
    """What the servers say of themselves, by server."""
    encoders: Sequence[KeptEncoder] = ()
    open: OpenEncoders = lambda setting: []
    """Opens further encoders, for methods that name them."""

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.tools, self.texts)

    @cached_property
    def said(self) -> dict[ToolId, str]:
        """What encoders read of each tool."""
        return {tool.id: embedded_text(document(tool, self.texts.get(tool.upstream, ""))) for tool in self.tools}

    def pipeline(self, most: int = 2, models: Mapping[str, LearnedModel] | None = None) -> Pipeline:
        """The proxy's ranking with the first `most` encoders and with learned models, by their methods."""
        chosen, learned = self.encoders[:most], LearnedModels(models) if models else None
        if not chosen:
            return Pipeline(self.corpus, None, learned)
        from foretool.retrieval.rankers.dense import DenseEnsemble

        dense = DenseEnsemble(list(chosen))
        for head, encoder in zip(dense.heads, chosen, strict=True):
            head.add(encoder.rows(list(self.said.values())))
        dense.align(self.corpus.digests, self.corpus.version, self.corpus.servers)
        return Pipeline(self.corpus, dense, learned)


def bm25(pool: Pool) -> Search:
    """Textbook BM25 over name and description as one field."""
    tools, score_all = pool.tools, bm25_scores(pool)

    def search(text: str) -> list[ToolId]:
        scores = score_all(text)
        slots = sorted((slot for slot in range(len(tools)) if scores[slot] > 0), key=lambda slot: -scores[slot])
        return [tools[slot].id for slot in slots[:DEPTH]]

    return search


def bm25_scores(pool: Pool, k1: float = 1.2, b: float = 0.75) -> Callable[[str], list[float]]:
    """Scores every tool of the pool, in the pool's order."""
    tools = pool.tools
    rows = [json.loads(tool.definition) for tool in tools]
    counts = [Counter(terms(f"{row['name']} {row.get('description') or ''}")) for row in rows]
    frequency = Counter(term for count in counts for term in count)
    mean = fmean(count.total() for count in counts) or 1.0

    def score(wanted: Sequence[str], count: Counter[str]) -> float:
        norm = k1 * (1 - b + b * count.total() / mean)
        idf = {term: log(1 + (len(tools) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in wanted}
        return sum(idf[term] * count[term] * (k1 + 1) / (count[term] + norm) for term in wanted)

    def scores(text: str) -> list[float]:
        wanted = terms(text)
        return [score(wanted, count) for count in counts]

    return scores
