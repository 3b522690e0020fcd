"""The search index: follows the catalog tool by tool, and holds the pipeline that ranks the tools it has.

Lists need no index, so nothing is indexed before somebody searches or the process is idle. Reading one tool takes
0.14 ms. With thousands of them the index is made in slices, and calls go on between two slices. A thread would hold up
calls for longer: it gives way only every 5 ms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretool.retrieval.pipeline import Pipeline
    from foretool.server.catalog.catalog import Catalog


class Index:
    """Knows which tools of a catalog its pipeline can rank, and indexes the others on demand."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
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
        """The pipeline as it is; `update` returns it with more tools."""
        # Not at the top: lists do not wait for what only searches need.
        from foretool.retrieval.corpus import Corpus
        from foretool.retrieval.pipeline import Pipeline

        return Pipeline(Corpus())

    @property
    def is_complete(self) -> bool:
        """Whether every tool is indexed as it is now."""
        return self._follow() and self._work is None

    def count_missing(self) -> int:
        """About how many tools are still to be indexed: an upstream counts in full until it is done."""
        self._follow()
        names = self._waiting.keys() | ({self._current} if self._work else ())
        return sum(len(self._catalog.of(name)) for name in names)

    def update(self, most: float = inf) -> Pipeline:
        """Index the missing tools if there are at most `most` of them, and return the pipeline either way."""
        if not self.is_complete and self.count_missing() <= most:
            self.advance()
        self.pipeline.is_filling = not self.is_complete
        return self.pipeline

    def advance(self, patience_s: float = inf) -> bool:
        """Index missing tools for about `patience_s` seconds; returns whether none is left."""
        until = time.perf_counter() + patience_s
        self._work = self._work or self._index_waiting()
        for _ in self._work:
            if time.perf_counter() >= until:
                return False
        self._work = None
        return True

    def _index_waiting(self) -> Iterator[None]:
        while not self._follow():
            self._current = next(iter(self._waiting))
            del self._waiting[self._current]
            tools, text = self._catalog.of(self._current), self._catalog.server_text(self._current)
            yield from self.pipeline.corpus.replacing(self._current, tools, text)

    def _follow(self) -> bool:
        """Take in what has changed; returns whether no upstream waits."""
        if self._followed != self._catalog.version:
            self._waiting |= dict.fromkeys(self._catalog.changed_since(self._followed))
            self._followed = self._catalog.version
        return not self._waiting
