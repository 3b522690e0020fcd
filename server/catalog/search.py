"""One search from its query to its ranking: at once where everything is quick, else in steps with a thread between.

Slow are encoders behind an endpoint or on torch, which are asked before the tools are ranked. The ranking itself always
runs on the loop, where the catalog cannot change under it.

So does the index of the words of all tools, 0.14 ms each: with thousands of them it is made in slices, between which
calls go on, and a search waits for it a while. A thread would hold up calls for longer: it gives way every 5 ms only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from foretool.retrieval.encoders.ahead import Ahead
    from foretool.retrieval.ranking import Query, Ranking
    from foretool.server.catalog.catalog import Catalog

SLICE_S: Final = 0.002
"""So long is indexed at a time."""
FEW: Final = 500
"""Tools that are indexed at once where they are wanted; it takes some 70 ms."""
INDEX_S: Final = 5.0
"""A search waits so long for the index; then it is of the tools that are in it."""

log = logging.getLogger("foretool.searching")


class Searching:
    """What of a search is slow; nothing, until `Embedding` has opened something that is."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.encoders: Sequence[Ahead] = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self._indexer: asyncio.Task[None] | None = None

    def before(self, query: Query, go: Callable[[], None]) -> None:
        """Have `go` called once the tools are indexed and the slow encoders have answered: now, or in a later turn of
        the loop."""
        is_short = self._catalog.unindexed() > FEW
        if query.lines and (is_short or self.encoders):
            self._begin(self._prepared(query, go, INDEX_S if is_short else 0.0))
        else:
            go()

    def now(self, query: Query, rank: Callable[[], Ranking]) -> Ranking:
        """Ask the slow encoders and then rank, however long it takes: for commands, which nobody else waits for."""
        self._ask(query)
        return rank()

    async def index(self, patience_s: float) -> bool:
        """Index what is not; whether that was all. It goes on after `patience_s`."""
        if not self._catalog.is_indexed:
            if self._indexer is None or self._indexer.done():
                self._indexer = asyncio.get_running_loop().create_task(self._index())
            await asyncio.wait({self._indexer}, timeout=patience_s)
        return self._catalog.is_indexed

    async def _index(self) -> None:
        while not self._catalog.index(SLICE_S):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End what was begun without a search."""
        if self._indexer is not None:
            self._indexer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._indexer

    async def finished(self) -> None:
        """Wait for what was begun."""
        await asyncio.gather(*self._tasks)

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(steps)
        self._tasks.add(task)  # the loop itself forgets tasks
        task.add_done_callback(self._tasks.discard)

    async def _prepared(self, query: Query, go: Callable[[], None], patience_s: float) -> None:
        if patience_s:
            await self.index(patience_s)
        if self.encoders:
            await asyncio.to_thread(self._ask, query)
        go()

    def _ask(self, query: Query) -> None:
        from foretool.retrieval.pipeline import needs

        texts = needs(query.lines)
        told = texts if len(texts) < 2 else [*texts, "\n".join(texts)]
        for encoder in self.encoders if told else ():
            try:
                encoder.fetch(told)
            except Exception as error:  # noqa: BLE001 -- somebody else's model or network: the others rank without it
                log.warning("encoder %s: %s; ranked without it", encoder.name, error)
