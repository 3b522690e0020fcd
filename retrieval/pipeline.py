"""The recipe: which rankers take part over this corpus, and in which order they decide.

Words decide (`rankers.bm25`), and encoders beside them where some are installed (`rankers.dense`), each line of a task
for itself. What was learned from earlier tasks is one part more (`rankers.learned`). Usage settles near ties
(`rankers.usage`). A tool that was named stands before all others (`rankers.names`). A tool without a matching word,
name or use is not ranked at all; with encoders, neither is one further off than the average tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from foretool.retrieval.clauses import split_task
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.rankers.usage import habits
from foretool.retrieval.ranking import LEARNED, Query, Ranked, Ranking, Reasons, split_needs
from foretool.retrieval.scoring import FIRST, Kept, QueryScores
from foretool.storage.records import ToolId, Usage

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Floats, Reading
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.retrieval.rankers.learned import LearnedModels

_MAX_READINGS, _REPLAYED_READINGS = 256, 4_096
"""How many texts keep their vectors, and in a replay."""
_LEAST_CHANCE = 0.01
"""Tools that are less likely to be called next are left out of a prediction."""
READ_AT_ONCE = 400
"""So many characters of a task are read by encoders at once, in some 20 ms; the longest one takes half a second."""

_chance = itemgetter(0)


class Pipeline:
    """Ranks a corpus. It reads the corpus at each query, so a corpus may change between two of them."""

    def __init__(
        self, corpus: Corpus, dense: DenseEnsemble | None = None, learned: LearnedModels | None = None
    ) -> None:
        self.corpus = corpus
        self.dense = dense
        """The encoders; None while there are none."""
        self.learned = learned
        """The learned models; None while there are none."""
        self.is_filling = False
        """Whether many tools are still to come. Words and names rank those that are there; encoders and models wait."""
        self._readings: dict[str, Reading] = {}
        """The vectors of the texts that were searched last."""
        self._untaken: set[str] = set()
        """Those of the texts that `take_readings` has not returned."""
        self._reader: object = None
        """The encoders that made them."""
        self.is_replaying = False
        """Whether the same tasks are ranked with one set of models after the other: what does not depend on models is
        kept then, and nobody reads reasons."""
        self.may_read: Callable[[Sequence[str]], bool] | None = None
        """Tells whether encoders may read the clauses of a task; None: always. A replay leaves out those that nobody
        has read before, which would be most of what it embeds."""
        self._kept: tuple[object, Kept] | None = None
        """The corpus and encoders of a replay, and what is kept of them."""

    def rank(self, query: Query, usage: Mapping[ToolId, Usage] | None = None, limit: int = 50) -> Ranking:
        """Return the best `limit` tools for a query; tools asked for by name come first; empty when nothing fits."""
        request, ids, replays = self._request(query, usage), self.corpus.ids, self.is_replaying
        order, fitting = request.best(max(limit, FIRST) if request.lines else limit)
        first = [slot for slot, _ in order[:FIRST]]
        fit_of = dict(zip(first, request.fits(first), strict=False))
        ranked = [
            Ranked(
                tool, score, request.parts_of(slot, score),
                () if replays else Reasons(request.reasons, slot, tool), fit_of.get(slot),
            )
            for slot, score in order[:limit]
            if (tool := ids[slot]) is not None
        ]  # fmt: skip
        is_learned = request.sum is not None and not LEARNED.isdisjoint(request.sum.parts)
        return Ranking(tuple(ranked), fitting, request.evidence(), is_learned, "\n".join(query.lines))

    def is_long(self, query: Query) -> bool:
        """Return whether encoders need so long for a query that they must not block the event loop."""
        return self.dense is not None and sum(map(len, query.lines)) > READ_AT_ONCE

    def long_reading(self, query: Query) -> Callable[[], Callable[[], None]] | None:
        """Return a function that runs the encoders over a long query and may be called in another thread; None where
        the query is short or already read. It returns a second function, which stores the vectors for the ranking: call
        that one in the thread that ranks."""
        if not self.is_long(query) or (dense := self._ready_encoders()) is None:
            return None
        if not (texts := self._unread(dense, split_task(split_needs(query.lines)))):
            return None

        def keep(read: Mapping[str, Reading]) -> None:
            if self._reader is dense:
                self._keep_readings(read)

        return lambda: partial(keep, dict(zip(texts, dense.readings(texts), strict=True)))

    def parts(self, query: Query, usage: Mapping[ToolId, Usage] | None = None) -> dict[str, Floats]:
        """Return what each ranker adds to the score of every slot; (slots,) each. {} where words alone rank."""
        request = self._request(query, usage)
        return request.sum.parts if request.sum is not None else {}

    def after(self, history: Sequence[ToolId], lines: Sequence[str] = ()) -> tuple[Mapping[ToolId, float], float]:
        """Return the tools that are called next and their probabilities, the likeliest first, and the probability that
        the task is done; ({}, 0) where nothing was learned. Cheap enough for the path of a call: the words of a task
        count only if they were searched before."""
        learned = self._aligned_models(self._ready_encoders())
        if learned is None:
            return {}, 0.0
        return self._predict(learned, history, self._known_reading(lines), lines)

    def _known_reading(self, lines: Sequence[str]) -> Reading | None:
        """Return the vectors of a task that was searched before."""
        return self._readings.get("\n".join(split_needs(lines))) if lines else None

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """Return the vectors of texts by encoder, as a search reads them; [] without encoders."""
        return self._read(self.dense, texts) if self.dense is not None else []

    def take_readings(self) -> dict[str, Reading]:
        """Return the vectors of the texts that the encoders in use have read since the last time, by text."""
        taken = {text: self._readings[text] for text in self._untaken} if self._reader is self.dense else {}
        self._untaken.clear()
        return taken

    def _predict(
        self, learned: LearnedModels, history: Sequence[ToolId], reading: Reading | None, lines: Sequence[str]
    ) -> tuple[dict[ToolId, float], float]:
        found = learned.after(history, reading, lines)
        if found is None:
            return {}, 0.0
        chances, end = found
        slots = (chances >= _LEAST_CHANCE).nonzero()[0]
        likely = sorted(zip(chances[slots].tolist(), slots.tolist(), strict=True), key=_chance, reverse=True)
        ids = self.corpus.ids
        return {tool: chance for chance, slot in likely if (tool := ids[slot]) is not None}, end

    def _request(self, query: Query, usage: Mapping[ToolId, Usage] | None) -> QueryScores:
        dense = self._ready_encoders()
        usage = usage or {}
        learned = self._aligned_models(dense)
        kept = self._keep(dense) if self.is_replaying else None
        return QueryScores(self.corpus, query, usage, habits(usage), dense, learned, self._read, kept, self.may_read)

    def _keep(self, dense: DenseEnsemble | None) -> Kept:
        """Return what is kept in a replay of this corpus and these encoders."""
        of = (self.corpus.version, id(dense))
        if self._kept is None or self._kept[0] != of:
            self._kept = of, Kept(len(self.corpus.ids))
        return self._kept[1]

    def _read(self, dense: DenseEnsemble, texts: Sequence[str]) -> list[Reading]:
        """Return the vectors of each text by encoder; kept for a while, unless an encoder has failed."""
        new = self._unread(dense, texts)
        read = dict(zip(new, dense.readings(new), strict=True)) if new else {}
        found = [read.get(text) or self._readings[text] for text in texts]
        self._keep_readings(read)
        return found

    def _unread(self, dense: DenseEnsemble, texts: Sequence[str]) -> list[str]:
        """Return the texts whose vectors are not kept; those of other encoders go."""
        if self._reader is not dense:
            self._readings.clear()
            self._untaken.clear()
            self._reader = dense
        return [text for text in dict.fromkeys(texts) if text not in self._readings]

    def _keep_readings(self, read: Mapping[str, Reading]) -> None:
        # Zeros stand for a text that an encoder could not be asked (`encoders.slow`).
        known = {text: reading for text, reading in read.items() if all(each.any() for each in reading)}
        self._readings |= known
        self._untaken.update(known)
        while len(self._readings) > (_REPLAYED_READINGS if self.is_replaying else _MAX_READINGS):
            oldest = next(iter(self._readings))
            del self._readings[oldest]
            self._untaken.discard(oldest)

    def _aligned_models(self, dense: DenseEnsemble | None) -> LearnedModels | None:
        """Return the learned models, brought up to the tools as they are now."""
        learned = self.learned if not self.is_filling else None
        dense = dense if dense is not None and dense.is_whole else None
        if learned is not None and learned.stamp != (stamp := (self.corpus.version, id(dense))):
            vectors = dense.heads[0].vectors() if dense is not None else None
            learned.align(self.corpus.ids, stamp, vectors, dense.names if dense is not None else "")
        return learned

    def _ready_encoders(self) -> DenseEnsemble | None:
        """Return the encoders, if they know tools as they are now."""
        dense = self.dense if not self.is_filling else None
        if dense is not None and dense.version != self.corpus.version:
            dense.align(self.corpus.digests, self.corpus.version, self.corpus.servers)
        return dense if dense is not None and dense.is_ready else None
