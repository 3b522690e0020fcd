"""Search: everything that ranks tools, and the slow parts of a search off the event loop.

An encoder behind an endpoint or on torch is slow: it is asked in a thread, before the tools are ranked, and so is any
encoder for a long task. The ranking itself always runs on the loop, where the catalog cannot change under it. A search
also waits a while for the index.

Lists need no index, so nothing is indexed before somebody searches or the process is idle. Reading one tool takes
0.14 ms. With thousands of them the index is made in slices, and calls go on between two slices. A thread would hold up
calls for longer: it gives way only every 5 ms.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from foretool.retrieval.calibration import AS_SHIPPED, Recalibration
from foretool.retrieval.ranking import Query, Ranking, split_needs
from foretool.server.catalog.search_index import Index
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.records import Tool, ToolId, Usage
from foretool.storage.steps import Steps

if TYPE_CHECKING:
    from foretool.retrieval.confidence import Judgement
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.encoders.slow import Ahead
    from foretool.retrieval.model_format import Reading
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.retrieval.rankers.learned import LearnedModels
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.config.settings import Settings

SLICE_S: Final = 0.002
"""How long the index is worked on before other work gets its turn."""
AT_ONCE: Final = 20
"""A search indexes up to so many missing tools before it returns, 3 ms; more of them in slices."""
FEW: Final = 500
"""A ranking that nobody can wait for indexes up to so many missing tools at once; that takes some 70 ms."""
MANY: Final = 5000
"""A new list indexes up to so many missing tools at once, 0.7 s; with more, it ranks those that are there."""
INDEX_S: Final = 5.0
"""A search waits so long for the index, then ranks the tools that are in it."""
RANKED: Final = 50
"""How many tools are ranked for a profile that leaves out some tools."""
OPEN_S: Final = 15.0
"""The first searches in words wait so long for the encoders to open, which takes about half a second, and on a new
machine two seconds. Where everything is busy it takes five times as long, and a wrong answer costs more."""
_USAGE_S: Final = 60.0
"""How long usage is kept in memory: it moves slowly, and reading it for each search would cost more than the search."""

_NOBODY_KNOWS: Final[tuple[Mapping[ToolId, float], float]] = ({}, 0.0)
"""What comes next where nothing was learned."""

Finds = Callable[[Tool], bool]
"""Whether the clients of a profile may find a tool (`trust.policy.Reach.finds`)."""
Guard = Callable[[Callable[[], None]], None]
"""Runs one step of a request at the request's error boundary."""

log = logging.getLogger("foretool.search")


@lru_cache(maxsize=4096)
def _read_replacements(definition: bytes) -> frozenset[str]:
    from foretool.retrieval.cautions import find_replacements

    return frozenset(find_replacements(jsonrpc.member(Raw(definition), "description") or ""))


class RecentUsage:
    """Tells how often tools were used, and reads it from the store again every few seconds."""

    def __init__(self, read: Callable[[str], Sequence[Usage]], clock: Callable[[], float], catalog: Catalog) -> None:
        self._read = read
        self._clock = clock
        self._catalog = catalog
        self._known: dict[str, tuple[float, Mapping[ToolId, Usage]]] = {}
        """By profile: the usage, and until when it is believed."""

    def of(self, profile: str) -> Mapping[ToolId, Usage]:
        until, usage = self._known.get(profile, (-inf, {}))
        if self._clock() >= until:
            usages = self._catalog.meanings.count_under_new_names(self._read(profile))
            usage = {each.tool: each for each in usages}
            self._known[profile] = self._clock() + _USAGE_S, usage
        return usage

    def forget(self) -> None:
        """Read the usage from the store again at the next call."""
        self._known.clear()


class EncoderOpening:
    """Has encoders opened once somebody searches in words, and tells how long searches wait for that."""

    def __init__(self) -> None:
        self._open: Callable[[], asyncio.Future[None] | None] = lambda: None
        self.ready_in: Callable[[], float | None] = lambda: None
        """Tells in how many seconds encoders will take part that do not yet; None if there are none."""
        self._until = inf
        """Until when searches wait for tools to be ranked by meaning, by `time.monotonic`; no end while all are."""
        self._has_begun_early = False

    def connect(self, open_encoders: Callable[[], asyncio.Future[None] | None],
                ready_in: Callable[[], float | None]) -> None:  # fmt: skip
        """Call `open_encoders` before a search in words while not all tools are ranked by meaning; searches wait for
        what it returns, at most `OPEN_S` since the first of them."""
        self._open, self.ready_in = open_encoders, ready_in

    def begin(self) -> asyncio.Future[None] | None:
        """Start to open the encoders if nobody has; return a future that a search may wait for, None if there is
        nothing to wait for."""
        return self._open()

    def begin_early(self) -> None:
        """Start to open the encoders before anybody searches. Only the first call does something."""
        if not self._has_begun_early:
            self._has_begun_early = True
            self._open()

    def is_awaited(self, *, lacks_meaning: bool) -> bool:
        """Return whether a search waits for encoders. `lacks_meaning`: not all tools are ranked by meaning for it."""
        self._until = min(self._until, time.monotonic() + OPEN_S) if lacks_meaning else inf
        return lacks_meaning and time.monotonic() < self._until

    async def wait(self, opened: asyncio.Future[None]) -> None:
        """Wait until the encoders are open, or for as long as searches wait."""
        await asyncio.wait({opened}, timeout=max(self._until - time.monotonic(), 0.0))


class Search(BackgroundWork):
    """Ranks the tools of a catalog with whatever is installed: encoders, learned models, a calibration of the gate."""

    def __init__(
        self,
        catalog: Catalog,
        usage: Callable[[str], Sequence[Usage]],
        clock: Callable[[], float],
        settings: Settings | None = None,
    ) -> None:
        """`usage` reads how often each tool was used in a profile; `clock` says when it is read again. Without
        settings, wordings that come with foretool take no part."""
        self._catalog = catalog
        self._index = Index(catalog, with_shipped=settings is not None and settings.shipped_wordings)
        self._usage = RecentUsage(usage, clock, catalog)
        self._models: LearnedModels | None = None
        self._wordings: Mapping[bytes, tuple[str, ...]] = {}
        self._encoders: DenseEnsemble | None = None
        self._slow: Sequence[Ahead] = ()
        self._recalibration = AS_SHIPPED
        self._installed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_wanted = False
        """Whether somebody searches in words here, or will: an encoder is worth its memory from then on."""
        self.opening = EncoderOpening()

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes with everything that rankings depend on except usage."""
        return self._catalog.version, self._installed

    @property
    def has_learned(self) -> bool:
        """Whether learned models take part; indexes nothing."""
        return self._models is not None

    def count_unindexed(self, admits: Callable[[str], bool] = bool) -> int:
        """Return about how many tools are still to be indexed. `admits`: of which upstreams, of all without it."""
        return self._index.count_missing(admits)

    def update_corpus(self, most: float = FEW) -> Corpus:
        """Index the missing tools if there are at most `most` of them; returns the indexed tools."""
        return self._index.update(most).corpus

    def words_of(self, tool: Tool) -> str | None:
        """Return the words by which tools that do the same are told; None for a tool that is not indexed as it is."""
        return self._index.pipeline.corpus.words_of(tool)

    def indexed(self) -> Corpus | None:
        """Return the indexed tools, None while some are missing; indexes nothing."""
        return self._index.pipeline.corpus if self._index.is_complete else None

    def index_like(self, other: Search) -> None:
        """Copy the index of another search over about the same tools, so that only tools that differ are read. Call it
        before anything is indexed here."""
        self._index.begin_with(other.update_corpus(inf))

    def install_models(self, models: LearnedModels | None) -> None:
        """Rank with these learned models; None takes them away."""
        self._usage.forget()
        self._index.pipeline.learned = self._models = models
        self._installed += 1

    def install_wordings(self, wordings: Mapping[bytes, tuple[str, ...]]) -> None:
        """Rank with wordings of wishes, by the hash of the text of their tool; others take the place of earlier
        ones."""
        if wordings != self._wordings:
            self._index.take_wordings(wordings)
            self._wordings = wordings
            self._installed += 1

    def configure(self, settings: Settings) -> None:
        if self._index.with_shipped != settings.shipped_wordings:
            self._index.take_shipped(settings.shipped_wordings)
            self._installed += 1

    def install_encoders(self, encoders: DenseEnsemble | None, slow: Sequence[Ahead] = ()) -> None:
        """Rank with these encoders from now on; None ranks by words alone. Those in `slow` are asked before a ranking,
        which never waits."""
        self._index.pipeline.dense = self._encoders = encoders
        self._slow = slow
        self._installed += 1

    @property
    def encoders(self) -> DenseEnsemble | None:
        """The encoders that rank; None while words alone do."""
        return self._encoders

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """Return the vectors of texts by encoder; those of the last searches cost nothing. [] without encoders."""
        return self._index.pipeline.read(texts) if self._encoders is not None else []

    def take_readings(self) -> Mapping[str, Reading]:
        """Return the vectors of texts that encoders have computed since the last call, by text."""
        return self._index.pipeline.take_readings() if self._encoders is not None else {}

    def meaning_in(self) -> float | None:
        """Return in about how many seconds every tool is ranked by meaning, where some are ranked by words for want of
        vectors that are still being computed; else None."""
        # A server that was just added has few tools of many, and those are what its user asks for.
        is_complete = self._encoders is not None and self._encoders.is_complete and not self._index.pipeline.is_filling
        if is_complete or len(self._catalog) < 2:  # of one tool there is nothing to compare
            return None
        return self.opening.ready_in()

    def want_encoders(self) -> None:
        """Begin to open the encoders, if that has not begun, for later searches."""
        if self._encoders is None:
            self.opening.begin_early()

    def install_calibration(self, recalibration: Recalibration) -> None:
        """Correct the gate's probabilities by what earlier searches on this machine showed."""
        self._recalibration = recalibration

    def rank(self, query: Query, finds: Finds, limit: int, at_once: int = FEW) -> Ranking:
        """Return the best `limit` tools for a query, less those that may not be found; never waits. `at_once`: so many
        missing tools are indexed first."""
        self.is_wanted |= bool(query.lines)
        ranking = self._index.update(at_once).rank(query, self._usage.of(query.profile), limit)
        from foretool.retrieval.cautions import put_replacements_first

        get = self._catalog.get
        found = [each for each in ranking.ranked if (tool := get(each.tool)) is not None and finds(tool)]
        return replace(ranking, ranked=put_replacements_first(found, self._replacements_of))

    def _replacements_of(self, deprecated: ToolId) -> list[ToolId]:
        """Return the tools of the same server that a deprecated tool names in its place."""
        tool = self._catalog.get(deprecated)
        names = _read_replacements(tool.definition) if tool is not None else ()
        return [other.id for other in self._catalog.of(tool.upstream) if other.name in names] if tool and names else []

    def prepare_list(self) -> Steps[None]:
        """Index what a new list ranks, in steps."""
        while not self._index.is_complete and self._index.count_missing() <= MANY:
            yield
            self._index.advance(SLICE_S)

    def rank_for_list(self, lines: Sequence[str]) -> list[ToolId]:
        """Return the best tools for the words of a profile and past tasks, best first; usage takes no part in it."""
        self.is_wanted |= bool(lines)
        ranking = self._index.update(MANY).rank(Query(lines=tuple(lines)), limit=50)
        return [each.tool for each in ranking.ranked]

    def find(
        self,
        query: Query,
        finds: Finds,
        limit: int,
        go: Callable[[Ranking], None],
        guard: Guard = lambda step: step(),
    ) -> None:
        """Rank as `rank` does and call `go`: now, or in a later turn of the loop, once the index is complete, encoders
        are opened and the slow ones have answered. `guard` runs both steps, so that an error reaches the request that
        searched."""
        is_behind = self.count_unindexed() > AT_ONCE
        is_ranked = self._encoders is not None and self._index.is_complete and self.meaning_in() is None
        waits_for_meaning = self.opening.is_awaited(lacks_meaning=bool(query.lines) and not is_ranked)
        # The encoders open over tools that are indexed.
        opening = self.opening.begin() if waits_for_meaning and not is_behind else None

        def rank_now() -> None:
            guard(lambda: go(self.rank(query, finds, limit, AT_ONCE)))

        async def prepare() -> None:
            if is_behind and not await self.index(INDEX_S) and self.count_unindexed() <= FEW:
                await self.index(INDEX_S)  # so few are left that nobody should miss them
            if (opened := self.opening.begin() if waits_for_meaning and is_behind else opening) is not None:
                await self.opening.wait(opened)
            if self._slow and query.lines:
                await asyncio.to_thread(self._ask_slow, query)
            # Asked only now, since the encoders may have been opened meanwhile.
            if (read := self._index.pipeline.long_reading(query)) is not None:
                (await asyncio.to_thread(read))()

        async def rank_later() -> None:
            try:
                await prepare()
            except Exception:  # without that it is answered all the same
                log.exception("A search could not be prepared")
            rank_now()

        waits = is_behind or opening is not None or bool(self._slow and query.lines)
        if waits or self._index.pipeline.is_long(query):
            task = asyncio.get_running_loop().create_task(rank_later())
            self._tasks.add(task)  # the loop itself forgets tasks
            task.add_done_callback(self._tasks.discard)
        else:
            rank_now()

    def find_now(self, query: Query, finds: Finds, limit: int) -> Ranking:
        """Rank as `find` does and return the result, however long it takes: for commands."""
        self.update_corpus(inf)
        self._ask_slow(query)
        return self.rank(query, finds, limit)

    def _ask_slow(self, query: Query) -> None:
        from foretool.retrieval.clauses import split_task

        asked = split_task(split_needs(query.lines)) if self._slow else []
        for encoder in self._slow if asked else ():
            try:
                encoder.fetch(asked)
            except Exception as error:  # noqa: BLE001 -- somebody else's model or network: the others rank without it
                log.warning("encoder %s: %s; ranked without it", encoder.name, error)

    def predict(self, history: Sequence[ToolId], lines: Sequence[str]) -> tuple[Mapping[ToolId, float], float]:
        """Return which tools are called next with which probability, likeliest first, and the probability that the task
        is done; ({}, 0) if nothing was learned. Cheap enough for the path of a call."""
        return self._index.update(AT_ONCE).after(history, lines) if self.has_learned else _NOBODY_KNOWS

    @property
    def is_complete(self) -> bool:
        """Whether every tool is indexed."""
        return self._index.is_complete

    def judge(self, ranking: Ranking) -> Judgement:
        """Return how sure a ranking is, and how many of its tools to show."""
        from foretool.retrieval.confidence import judge

        judged = judge(ranking, self._recalibration)
        if judged.level in ("high", "medium") and self._deletes_something_else(ranking):
            return replace(judged, level="low")
        return judged

    def _deletes_something_else(self, ranking: Ranking) -> bool:
        """Return whether the first tool would delete what the task names neither in its words nor by meaning."""
        from foretool.retrieval.glossary import put_into_english
        from foretool.retrieval.rankers.deletions import NEARLY_NAMED, deletes, deletes_something_else

        first = ranking.ranked[0]
        tool = self._catalog.get(first.tool)
        is_near = first.fit is not None and first.fit.cosine >= NEARLY_NAMED
        if tool is None or is_near or not deletes(tool.name):
            return False
        if not ranking.task or all(each.named for each in ranking.evidence):
            return False
        said = f"{tool.upstream} {jsonrpc.member(Raw(tool.definition), 'description') or ''}"
        return deletes_something_else(put_into_english(ranking.task), tool.name, said)

    async def index(self, patience_s: float) -> bool:
        """Index missing tools and wait `patience_s` for it; returns whether none is left. Indexing then goes on."""
        if not self._index.is_complete:
            if not self.is_working:
                self.begin(self._index_slices())
            await self.finish(patience_s)
        return self._index.is_complete

    async def _index_slices(self) -> None:
        await asyncio.to_thread(_import_ranking)
        while not self._index.advance(SLICE_S):
            await asyncio.sleep(0)


def _import_ranking() -> None:
    """Import what the first search needs, which takes 20 ms; in a thread, so that the loop goes on."""
    from foretool.retrieval import confidence, pipeline

    assert confidence
    assert pipeline
