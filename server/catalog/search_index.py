"""The index of a search: which tools of the catalog it can rank. Only what somebody searches is indexed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretool.retrieval.corpus import Corpus, Shipped
    from foretool.retrieval.pipeline import Pipeline
    from foretool.server.catalog.catalog import Catalog


class Index:
    """Keeps the tools of a catalog ready to rank, and reads new and changed ones on demand."""

    def __init__(self, catalog: Catalog, *, with_shipped: bool = False) -> None:
        """`with_shipped`: tools of well-known servers have the wordings that come with foretool."""
        self._catalog = catalog
        self.with_shipped = with_shipped
        self._followed = 0
        """The version of the catalog up to which changes stand in `_waiting`."""
        self._waiting: dict[str, None] = {}
        """Upstreams whose tools have changed since they were indexed, oldest change first."""
        self._current = ""
        """The upstream that is being indexed, or was last."""
        self._work: Iterator[None] | None = None
        """The rest of the work that has begun; a pause follows each tool."""

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline with the tools that are indexed so far; `update` indexes the rest."""
        # Not at the top: lists do not wait for what only searches need.
        from foretool.retrieval.corpus import Corpus
        from foretool.retrieval.pipeline import Pipeline

        return Pipeline(Corpus(shipped=self._shipped()))

    def _shipped(self) -> Shipped | None:
        from foretool.retrieval.known_tools import shipped_wordings

        return shipped_wordings if self.with_shipped else None

    def begin_with(self, corpus: Corpus) -> None:
        """Take over the tools that another index has read; those that differ here are read again. Call it before
        anything is indexed."""
        self.pipeline.corpus = corpus.copy()
        self.pipeline.corpus.take_shipped(self._shipped())
        self._waiting |= dict.fromkeys(corpus.slots_of)

    @property
    def is_complete(self) -> bool:
        """Whether every tool is indexed as it is now."""
        return self._follow() and self._work is None

    def count_missing(self, admits: Callable[[str], bool] = bool) -> int:
        """Return about how many tools are still to be indexed: an upstream counts in full until it is done. `admits`:
        whether an upstream counts; all do without it."""
        self._follow()
        names = self._waiting.keys() | ({self._current} if self._work else ())
        return sum(len(self._catalog.listed(name)) for name in names if admits(name))

    def update(self, most: float = inf) -> Pipeline:
        """Index the missing tools if there are at most `most` of them, and return the pipeline either way."""
        if not self.is_complete and self.count_missing() <= most:
            self.advance()
        self.pipeline.is_filling = not self.is_complete
        self.pipeline.corpus.server_names = self._catalog.texts.names
        return self.pipeline

    def advance(self, patience_s: float = inf) -> bool:
        """Index missing tools for about `patience_s` seconds; returns whether none is left."""
        until = time.perf_counter() + patience_s
        self._work = self._work or self._index_waiting()
        for _ in self._work:
            if time.perf_counter() >= until:
                return False
        self._work = None
        from foretool.retrieval import glossary, known_tools

        # Nobody needs them until a tool changes, or somebody asks in Chinese.
        glossary.let_go()
        known_tools.let_go()
        return True

    def _index_waiting(self) -> Iterator[None]:
        while not self._follow():
            self._current = next(iter(self._waiting))
            del self._waiting[self._current]
            tools, text = self._catalog.of(self._current), self._catalog.texts.about(self._current)
            yield from self.pipeline.corpus.replacing(self._current, tools, text)

    def take_wordings(self, wordings: Mapping[bytes, tuple[str, ...]]) -> None:
        """Use these wordings of wishes from now on. Tools whose wordings changed wait to be indexed again."""
        self._waiting |= dict.fromkeys(self.pipeline.corpus.take_wordings(wordings))

    def take_shipped(self, with_shipped: bool) -> None:
        """Rank with the wordings that come with foretool, or without; if that changes, all tools are read again."""
        self.with_shipped = with_shipped
        if "pipeline" in self.__dict__:
            self._waiting |= dict.fromkeys(self.pipeline.corpus.take_shipped(self._shipped()))

    def _follow(self) -> bool:
        """Record what has changed; returns whether no upstream waits."""
        if self._followed != self._catalog.version:
            self._waiting |= dict.fromkeys(self._catalog.changed_since(self._followed))
            self._followed = self._catalog.version
        return not self._waiting
