"""The recipe: which rankers, in which order, over this catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretool.retrieval.ranking import Query, Ranking
from foretool.storage.records import Tool, ToolId, Usage


class Corpus:
    """Every tool that can be ranked, each in a slot that stays its own while the tool is unchanged."""

    def __init__(self, tools: Sequence[Tool] = (), server_texts: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def replace(self, upstream: str, tools: Sequence[Tool], server_text: str = "") -> None:
        """Make `tools` all that this upstream has; unchanged tools are not read again."""
        raise NotImplementedError

    def remove(self, upstream: str) -> None:
        """Forget every tool of this upstream."""
        raise NotImplementedError


class Pipeline:
    """Ranks a corpus; reads it at each query, so a corpus may change between two."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def rank(self, query: Query, usage: Mapping[ToolId, Usage] | None = None, limit: int = 50) -> Ranking:
        """The best `limit` tools for a query; tools asked for by name first; empty when nothing fits."""
        raise NotImplementedError
