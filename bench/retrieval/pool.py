"""The tools that a ranking searches, with the encoders that take part, and textbook BM25 over them as the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.kept_encoder import KeptEncoder
from foretool.desk.replay.rankings import bm25_scores
from foretool.retrieval.corpus import Corpus, Shipped
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
from foretool.retrieval.rankers.servers import ServerNames, ServerWords
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
    shipped: Shipped | None = None
    """Gives the proxy's ranking the wordings that come with foretool."""

    @cached_property
    def corpus(self) -> Corpus:
        corpus = Corpus(self.tools, self.texts, self.shipped)
        upstreams = dict.fromkeys(tool.upstream for tool in self.tools if tool.upstream)
        corpus.server_names = ServerNames({name: ServerWords((name,)) for name in upstreams})
        return corpus

    @cached_property
    def said(self) -> dict[ToolId, str]:
        """What encoders read of each tool, without wordings."""
        return {tool.id: embedded_text(document(tool, self.texts.get(tool.upstream, ""))) for tool in self.tools}

    @cached_property
    def _read(self) -> list[str]:
        """What the proxy's encoders read of each tool."""
        read = (self.corpus.read(tool, self.texts.get(tool.upstream, ""))[0] for tool in self.tools)
        return [embedded_text(each) for each in read]

    def pipeline(self, most: int = 2, models: Mapping[str, LearnedModel] | None = None) -> Pipeline:
        """The proxy's ranking with the first `most` encoders and with learned models, by their methods."""
        chosen, learned = self.encoders[:most], LearnedModels(models) if models else None
        if not chosen:
            return Pipeline(self.corpus, None, learned)
        from foretool.retrieval.rankers.dense import DenseEnsemble

        dense = DenseEnsemble(list(chosen))
        for head, encoder in zip(dense.heads, chosen, strict=True):
            head.add(encoder.rows(self._read))
        dense.align(self.corpus.digests, self.corpus.version, self.corpus.servers)
        return Pipeline(self.corpus, dense, learned)


def bm25(pool: Pool) -> Search:
    """Textbook BM25 over name and description as one field."""
    tools, score_all = pool.tools, bm25_scores(pool.tools)

    def search(text: str) -> list[ToolId]:
        scores = score_all(text)
        slots = sorted((slot for slot in range(len(tools)) if scores[slot] > 0), key=lambda slot: -scores[slot])
        return [tools[slot].id for slot in slots[:DEPTH]]

    return search
