"""The scores of one request: what words, names, usage, encoders and learned models give to every tool.

Each line of a task is a need of its own and is scored alone; several lines are then fused with all of them read as one
text. A long task is scored as a whole, and each of its clauses adds to the tools that it asks for (`clauses`). Where
words alone rank, scores are kept by slot for the tools that have any. With encoders or learned models the scores are
arrays over all slots (`score_sum`), which this module imports only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foretool.retrieval.clauses import SHARE, in_english, is_story, parts
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.glossary import put_into_english
from foretool.retrieval.line import NeedScores
from foretool.retrieval.named_servers import NamedServers, TextVectors
from foretool.retrieval.rankers.bm25 import idf
from foretool.retrieval.rankers.deletions import IDLE, RASH, UNASKED, asks_to_change, is_unasked, only_asks
from foretool.retrieval.rankers.usage import usage_shares
from foretool.retrieval.ranking import ADDRESS, ClauseFit, Evidence, Query, fuse_lines, split_needs
from foretool.retrieval.reasons import ReasonFinder
from foretool.storage.records import ToolId, Usage

if TYPE_CHECKING:
    from foretool.retrieval.graph import Raised
    from foretool.retrieval.model_format import Reading
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.retrieval.rankers.learned import LearnedModels
    from foretool.retrieval.score_sum import ScoreSum

_NAMED = 1000.0
"""What a named tool gets: more than any sum of words, so that it comes first."""
_LEAST_WORDS = 0.01
"""Usage is a share of this where a tool was named and shares no word."""
_ADDRESSED = 1.0
"""What a tool that needs a web address gains, in deviations, where the task gives one. Over 57 everyday tasks with an
address and 234 tools of 15 servers the right tool is first for 43 without it and the shorter reading of addresses, and
for 49 with them; over 678 tools of 18 servers for 18 and 37."""
_RAISING = 50
"""How many of the best tools may raise what they need."""
_MOST_KEPT, _LEAST_KEPT = 400_000, 50
"""Slots of all lines that a replay keeps, and the fewest lines."""
_LEAST_PART = 1e-5
"""A part of a score that is smaller is left out."""


_FITS = 10
"""How many of the first tools are looked at more closely; a profile may leave out some of them."""
FIRST = 20
"""How many of the first tools they are compared with."""
_NEXT = 4
"""How many tools behind each one may say nearly the same as it."""
_LEADS_BY = 10
"""The place of the tool whose cosine is compared with the nearest one's."""

_coverage = attrgetter("coverage")


class Kept:
    """Scores by words and encoders, kept by text. A replay ranks the same texts with one set of models after another,
    and computes them once; valid for one corpus and its encoders."""

    def __init__(self, slots: int) -> None:
        self._most = max(_MOST_KEPT // max(slots, 1), _LEAST_KEPT)
        self._lines: dict[str, NeedScores] = {}
        self._sums: dict[tuple[str, ...], list[ScoreSum]] = {}

    def line(self, text: str, make: Callable[[str], NeedScores]) -> NeedScores:
        """Return the scores of a text by words; the first time `make` computes them."""
        if (found := self._lines.get(text)) is None:
            if len(self._lines) >= self._most:
                self._lines.clear()
            found = self._lines[text] = make(text)
        return found

    def sums(self, texts: tuple[str, ...], make: Callable[[], list[ScoreSum]]) -> list[ScoreSum]:
        """Return the sums of some lines; the first time `make` computes them."""
        if (found := self._sums.get(texts)) is None:
            if len(self._sums) >= self._most:
                self._sums.clear()
            found = self._sums[texts] = make()
        return list(found)


class QueryScores:
    """One query against one corpus: every part of every score, before the best tools are picked."""

    def __init__(
        self,
        corpus: Corpus,
        query: Query,
        usage: Mapping[ToolId, Usage],
        habit: Mapping[ToolId, float],
        dense: DenseEnsemble | None,
        learned: LearnedModels | None,
        read_texts: Callable[[DenseEnsemble, Sequence[str]], list[Reading]],
        kept: Kept | None = None,
        may_read: Callable[[Sequence[str]], bool] | None = None,
    ) -> None:
        """`habit`: how much each tool is used (`rankers.usage.habits`). `dense` and `learned` follow the corpus as it
        is; `read_texts` asks the encoders for the vectors of texts; `kept`: what earlier requests made of texts;
        `may_read`: whether the clauses of a task may be read by encoders."""
        self.corpus = corpus
        self.query = query
        self.usage = usage
        self.dense = dense
        self.learned = learned
        self._vectors = TextVectors(dense, read_texts)
        self._kept = kept
        self._widened = dense is None
        self.lines = [self._line(text) for text in split_needs(query.lines)]
        alone = self.lines[0].text if len(self.lines) == 1 else ""
        found = parts(alone, by_words=self._widened)
        if may_read is not None and not self._widened and not may_read(found):
            found = []
        self.clauses = [self._line(text) for text in found]
        """The clauses or steps of a task of one line, where it has several."""
        self._servers = NamedServers(corpus, dense, self._vectors, is_told_by_lines=not self.clauses)
        self._unasked = (
            self.corpus.deeds.deleting
            if self.lines and is_unasked(put_into_english(self._whole_text()))
            else frozenset()
        )
        """The slots of tools that delete, where the task asks for no such thing."""
        self.raised: dict[ToolId, Raised] = {}
        """The tools that stand higher because a better one needs them."""
        self._needed: list[float | None] = []
        """By line, how likely it needs a tool at all; None where no model knows."""
        self._line_sums = self._sum_lines()
        """A sum for each line and, of several lines, one for all of them; [] where words alone rank."""
        self.sum = self._raise_needed(self._add_clauses(self._line_sums[-1])) if self._line_sums else None
        """The sum of all parts; None where words alone rank."""
        self.words = self._score_words() if self.sum is None else {}
        self.named = corpus.names.asked(query.names)
        """How surely each named tool was meant, by slot."""
        for line in self.lines:
            for slot, strength in line.named.items():
                self.named[slot] = max(strength, self.named.get(slot, 0.0))
        self._shares = usage_shares(query.servers_in_use, habit, corpus.slot_of, corpus.slots_of)

    def _line(self, text: str) -> NeedScores:
        return self._make_line(text) if self._kept is None else self._kept.line(text, self._make_line)

    def _make_line(self, text: str) -> NeedScores:
        return NeedScores(self.corpus, text, widened=self._widened)

    def best(self, limit: int) -> tuple[list[tuple[int, float]], int]:
        """Return the `limit` best slots with their scores, and how many slots fit at all."""
        order, fitting = self._best_by_words(limit) if self.sum is None else self._best_of_sum(limit, self.sum)
        return self._servers.put_first(order, self._whole_text(), self.named), fitting

    def _best_of_sum(self, limit: int, summed: ScoreSum) -> tuple[list[tuple[int, float]], int]:
        boosts = {slot: _NAMED * strength for slot, strength in self.named.items()}
        for slot, share in self._shares.items():
            boosts[slot] = boosts.get(slot, 0.0) + share * max(float(summed.total[slot]), _LEAST_WORDS)
        return summed.best(limit, boosts, self.corpus.ids)

    def parts_of(self, slot: int, score: float) -> dict[str, float]:
        """Return what each ranker added to the score of one tool; parts of nearly nothing are left out."""
        if self.sum is None and score == self.words.get(slot) and score > _LEAST_PART and slot not in self.named:
            return {"lexical": score}
        said = {"lexical": self.words.get(slot, 0.0)} if self.sum is None else self.sum.of(slot)
        named = _NAMED * self.named.get(slot, 0.0)
        if gain := self._servers.gains.get(slot, 0.0):
            said["server"] = said.get("server", 0.0) + gain
        parts = {"name": named, **said, "usage": score - named - sum(said.values())}
        return {name: part for name, part in parts.items() if abs(part) > _LEAST_PART}

    def evidence(self) -> tuple[Evidence, ...]:
        """Return how well each line and each name was met."""
        names = self.corpus.names
        found = [line.evidence(self.corpus.lexical) for line in self.lines]
        if self._line_sums:
            found = [replace(each, nearness=one.nearness) for each, one in zip(found, self._line_sums, strict=False)]
        if any(chance is not None for chance in self._needed):
            found = [replace(each, needed=chance) for each, chance in zip(found, self._needed, strict=False)]
        return (*found, *(Evidence(named=bool(names.asked((name,)))) for name in self.query.names))

    def fits(self, slots: Sequence[int]) -> list[ClauseFit]:
        """Return how well the first of these tools meet the task, each by the line or clause that it meets best."""
        lines = [*self.lines, *self.clauses]
        if not lines or not slots:
            return []
        fit = partial(_fit, self.corpus, len(lines))
        if self.dense is None:
            return [max((fit(line, slot) for line in lines), key=_coverage) for slot in slots[:_FITS]]
        readings = self._vectors.of([line.text for line in lines])
        found = list[ClauseFit]()
        cosines = [[float(each) for each in row] for row in self.dense.nearness(readings, slots)]
        met = sorted(map(max, cosines))[len(cosines) // 2]
        alike = self.dense.alike(slots[: _FITS + _NEXT], _NEXT)
        for place, slot in enumerate(slots[:_FITS]):
            line, near = max(zip(lines, cosines, strict=True), key=lambda pair: pair[1][place])
            order = sorted(near, reverse=True)
            lead = order[0] - order[min(_LEADS_BY, len(order)) - 1]
            agreed = 1.0 / (1 + sum(each > near[place] for each in near))
            fitting = fit(line, slot)
            found.append(replace(fitting, cosine=near[place], lead=lead, met=met, agreed=agreed, alike=alike[place]))
        return found

    def reasons(self, slot: int, tool: ToolId) -> Iterator[str]:
        """Return why a tool stands in the ranking, in words for people, the strongest kind of reason first."""
        return self._reasons.find(slot, tool)

    @cached_property
    def _reasons(self) -> ReasonFinder:
        parts_of = self.sum.of if self.sum is not None else lambda slot: {}
        by_meaning = self.sum is not None and self.dense is not None
        return ReasonFinder(
            self.corpus, self.query, self.lines, self.named, self.usage, self.learned, self.raised, parts_of,
            by_meaning=by_meaning,
        )  # fmt: skip

    def _whole_text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    # -- words alone

    def _score_words(self) -> dict[int, float]:
        if len(self.lines) < 2:
            return self._add_hits_of_clauses(self._hits_of(self.lines[0])) if self.lines else {}
        hits = [self._hits_of(line) for line in self.lines]
        size = max(self.corpus.lexical.live, 1)
        return fuse_lines(hits, self._hits_of(self._whole()), size, lambda slot: str(self.corpus.ids[slot]))

    def _hits_of(self, line: NeedScores) -> dict[int, float]:
        """Return what the words of a line score, and what the servers gain that it names."""
        return self._servers.raise_hits(line, self._lower_hits(line))

    def _lower_hits(self, line: NeedScores) -> dict[int, float]:
        """Return what the words of a line score, less for tools that delete and were not asked for, and for those that
        only read where the line begins with a change."""
        hits = line.hits
        for _, slots, share in self._lowered(line):
            if low := hits.keys() & slots:
                hits = {**hits, **{slot: share * hits[slot] for slot in low}}
        return hits

    def _lower_sum(self, summed: ScoreSum, line: NeedScores) -> ScoreSum:
        """Do the same for a sum."""
        for part, slots, share in self._lowered(line):
            summed = summed.lowered(part, slots, share)
        return summed

    def _lowered(self, line: NeedScores) -> Iterator[tuple[str, AbstractSet[int], float]]:
        """Yield the slots whose tools do what a line does not ask for, with the name of that part and what their scores
        are multiplied by."""
        if self._unasked:
            yield "deletion", self._unasked, UNASKED
        deeds, task = self.corpus.deeds, in_english(line.text)
        if deeds.reading and asks_to_change(task):
            yield "reading", deeds.reading, IDLE
        elif deeds.changing and only_asks(task):
            yield "changing", deeds.changing, RASH

    def _add_hits_of_clauses(self, hits: dict[int, float]) -> dict[int, float]:
        if not self.clauses:
            return hits
        best: dict[int, float] = {}
        for clause in self.clauses:
            for slot, score in self._lower_hits(clause).items():
                best[slot] = max(score, best.get(slot, 0.0))
        return {slot: hits.get(slot, 0.0) + SHARE * best.get(slot, 0.0) for slot in hits.keys() | best.keys()}

    def _whole(self) -> NeedScores:
        """Return all lines as one text."""
        return self._line(self._whole_text())

    def _best_by_words(self, limit: int) -> tuple[list[tuple[int, float]], int]:
        total = self._total_by_words()
        least = sorted(total.values(), reverse=True)[:limit][-1] if total and limit else 0.0
        ids = self.corpus.ids
        # Equal scores come in the order of their names, not in the order in which servers happened to answer.
        order = sorted((-score, str(ids[slot]), slot) for slot, score in total.items() if score >= least)[:limit]
        return [(slot, -score) for score, _, slot in order], len(total)

    @property
    def _asks(self) -> bool:
        """Whether words or names ask for anything; else usage alone ranks."""
        return bool(self.lines or self.query.names)

    def _total_by_words(self) -> dict[int, float]:
        """Return the score of all tools that share a word, were named or, where nothing is asked for, are used."""
        if not self._asks:
            return dict(self._shares)
        total = dict(self.words)
        for slot, strength in self.named.items():
            total[slot] = self.words.get(slot, 0.0) + _NAMED * strength
        shares = self._shares.keys()
        for slot in (shares & self.words.keys()) | (shares & self.named.keys()):
            # Also among tools of the same name, whatever their words: the share is small against any other difference.
            said = self.words.get(slot, 0.0)
            total[slot] = total.get(slot, said) + self._shares[slot] * max(said, _LEAST_WORDS)
        return total

    # -- with encoders or learned models

    def _sum_lines(self) -> list[ScoreSum]:
        if self.dense is None and self.learned is None:
            return []
        lines = self.lines if len(self.lines) < 2 else [*self.lines, self._whole()]
        texts = [line.text for line in lines]
        readings = self._vectors.of(texts) if self.dense is not None and lines else []
        if self.learned is not None:
            sums = self._sum_learned(self.learned, lines, readings)
        else:
            sums = self._sum_with_encoders(self.dense, lines, readings) if self.dense is not None and readings else []
        sums = [
            self._servers.lift(self._lift_addressed(self._lower_sum(summed, line), line), line)
            for summed, line in zip(sums, lines, strict=False)
        ] or sums
        if len(sums) > 1:
            from foretool.retrieval.score_sum import fuse_sums

            sums[-1] = fuse_sums(sums[:-1], sums[-1], self.corpus.ids)
        return sums

    def _lift_addressed(self, summed: ScoreSum, line: NeedScores) -> ScoreSum:
        """Lift the tools that need a web address where a line gives one."""
        tools = self.corpus.needing_address if ADDRESS in line.text else ()
        return summed.lifted("address", {self.corpus.slot_of[tool]: _ADDRESSED for tool in tools})

    def _sum_with_encoders(
        self, dense: DenseEnsemble, lines: Sequence[NeedScores], readings: Sequence[Reading]
    ) -> list[ScoreSum]:
        def sums() -> list[ScoreSum]:
            return dense.sums([line.hits for line in lines], readings, [line.telling for line in lines])

        return sums() if self._kept is None else self._kept.sums(tuple(line.text for line in lines), sums)

    def _sum_learned(
        self, learned: LearnedModels, lines: Sequence[NeedScores], readings: list[Reading]
    ) -> list[ScoreSum]:
        """Return one sum for each text with what was learned; one of the history alone without texts and names; []
        where nothing but words has a say."""
        from foretool.retrieval.score_sum import sum_words

        if not lines and self.query.names:
            return []
        texts, hits = [line.text for line in lines], [line.hits for line in lines]
        known: Sequence[Reading | None] = readings or [None] * max(len(texts), 1)
        self._needed = [learned.needs_tool(reading, text) for text, reading in zip(texts, known, strict=False)]
        if not texts:
            texts, hits = [""], [{}]
        added = [
            learned.parts(Query((text,) if text else (), (), self.query.history, self.query.servers_in_use), reading)
            for text, reading in zip(texts, known, strict=True)
        ]
        if self.dense is not None and readings:
            factors = learned.factors_for(self.dense.names)
            sums = self._sum_with_encoders(self.dense, lines, readings)
        elif any(added) or learned.graph is not None:
            factors = learned.factors_for("")
            sums = [sum_words(hit, learned.live) for hit in hits]
        else:
            return []
        return [
            _lift_newcomers(learned, base, base.plus(parts).scaled(factors))
            for base, parts in zip(sums, added, strict=True)
        ]

    def _add_clauses(self, summed: ScoreSum) -> ScoreSum:
        """Add what the best clause of each tool says, by words and encoders, and put the best tool of every clause
        ahead."""
        if not self.clauses:
            return summed
        from foretool.retrieval.score_sum import best_of, cover_clauses, sum_words

        if self.dense is None:
            sums = [sum_words(self._lower_hits(clause), summed.live) for clause in self.clauses]
            return summed.plus({"clauses": SHARE * best_of(sums)})
        readings = self._vectors.of([clause.text for clause in self.clauses])
        made = self._sum_with_encoders(self.dense, self.clauses, readings)
        sums = [self._lower_sum(each, clause) for each, clause in zip(made, self.clauses, strict=True)]
        if is_story(in_english(self.lines[0].text)):
            return summed.plus({"clauses": SHARE * best_of(sums)})
        return cover_clauses(summed, sums, self.corpus.ids)

    def _raise_needed(self, summed: ScoreSum) -> ScoreSum:
        """Raise what the best tools need towards them, as a part of its own."""
        graph = self.learned.graph if self.learned is not None else None
        if graph is None:
            return summed
        ids, slot_of = self.corpus.ids, self.corpus.slot_of
        order, _ = summed.best(_RAISING, {}, ids)
        best = {tool: score for slot, score in order if (tool := ids[slot]) is not None}
        self.raised = {tool: each for tool, each in graph.raised(best).items() if tool in slot_of}
        slots = {slot_of[tool]: each.score for tool, each in self.raised.items()}
        lifts = {slot: max(score - float(summed.total[slot]), 0.0) for slot, score in slots.items()}
        return summed.lifted("graph", lifts)


def _lift_newcomers(learned: LearnedModels, base: ScoreSum, summed: ScoreSum) -> ScoreSum:
    """Put tools that no training has seen among the first where words and encoders alone would have them there."""
    from foretool.retrieval.score_sum import newcomer_lifts

    found = learned.newcomers() if len(summed.parts) > len(base.parts) else None
    if found is None:
        return summed
    return summed.lifted("new", newcomer_lifts(summed.total, base.total, *found))


def _fit(corpus: Corpus, needs: int, line: NeedScores, slot: int) -> ClauseFit:
    """Return how well a tool meets a line by words."""
    strength = line.hits.get(slot, 0.0) / idf(corpus.lexical.live, 1)
    return ClauseFit(corpus.lexical.coverage(line.wanted, slot), strength, needs=needs)
