"""The reasons of a ranking: why a tool stands where it does, in words for people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.glossary import Piece, translated
from foretool.retrieval.line import NeedScores
from foretool.retrieval.rankers.bm25 import Impacts
from foretool.retrieval.rankers.names import EXACT
from foretool.retrieval.ranking import ADDRESS, IN_USE, SERVER_NAMED, USED, Query
from foretool.retrieval.words import KINDRED_WORDS, spell_terms, terms
from foretool.storage.records import ToolId, Usage

if TYPE_CHECKING:
    from foretool.retrieval.graph import Raised
    from foretool.retrieval.rankers.learned import LearnedModels

_MAX_REASON_TERMS = 8
"""How many of the telling terms of a query are looked for in a tool."""
_MAX_REASON_WORDS = 5
_TELLING = 0.5
"""The least score of a learned part that is a reason."""


class ReasonFinder:
    """Finds out why a tool stands where it does in the ranking of one request."""

    def __init__(
        self,
        corpus: Corpus,
        query: Query,
        lines: Sequence[NeedScores],
        named: Mapping[int, float],
        usage: Mapping[ToolId, Usage],
        learned: LearnedModels | None,
        raised: Mapping[ToolId, Raised],
        parts_of: Callable[[int], Mapping[str, float]],
        *,
        by_meaning: bool,
    ) -> None:
        """`named`: by slot, how surely each named tool was meant. `raised`: the tools that stand higher because a
        better one needs them. `parts_of` returns what each ranker added to a slot; `by_meaning`: whether encoders took
        part."""
        self._corpus = corpus
        self._query = query
        self._lines = lines
        self._text = "\n".join(line.text for line in lines)
        self._named = named
        self._usage = usage
        self._learned = learned
        self._raised = raised
        self._parts_of = parts_of
        self._by_meaning = by_meaning

    def find(self, slot: int, tool: ToolId) -> Iterator[str]:
        """Yield why a tool stands in the ranking, the strongest kind of reason first."""
        if slot in self._named:
            yield "name" if self._named[slot] > EXACT - 1.0 else "similar name"
        if self._servers and self._corpus.identity(slot).upstream in self._servers:
            yield SERVER_NAMED
        if ADDRESS in self._text and tool in self._corpus.needing_address:
            yield "takes a web address"
        has = [term for term, found in self._telling_terms if found.has(slot)]
        said, translated = self._words_in(has, tool)
        if said:
            yield "words: " + ", ".join(said)
        if translated:
            yield "words translated: " + ", ".join(translated)
        if has and not (said or translated):
            alike = [KINDRED_WORDS.get(term) or self._alike[term] for term in has[:_MAX_REASON_WORDS]]
            yield "words alike: " + ", ".join(alike)
        elif self._by_meaning:
            yield "meaning"
        if self._learned is not None:
            yield from self._learned_reasons(self._learned, self._parts_of(slot), tool)
        if tool in self._usage:
            yield USED
        if any(slot in self._corpus.slots_of.get(server, ()) for server in self._query.servers_in_use):
            yield IN_USE

    def _words_in(self, has: Sequence[str], tool: ToolId) -> tuple[list[str], list[str]]:
        """Return the words of the query among these terms of a tool: those that both have as they are written, and
        those that one of them has in another language."""
        in_english = self._corpus.translated.get(tool, frozenset())
        written = [term for term in has if term in self._spelled]
        said = [self._spelled[term] for term in written if term not in in_english][:_MAX_REASON_WORDS]
        put = [self._in_english[term] for term in has if term in self._in_english and term not in written]
        translated = [
            *(each for each, word in put if word not in said),
            *(self._spelled[term] for term in written if term in in_english),
        ]
        return list(dict.fromkeys(said)), list(dict.fromkeys(translated))[:_MAX_REASON_WORDS]

    def _learned_reasons(self, learned: LearnedModels, parts: Mapping[str, float], tool: ToolId) -> Iterator[str]:
        history = self._query.history
        if parts.get("tasks", 0.0) >= _TELLING:
            yield "like an earlier task"
        # What a tool that was never called gets here, it gets for its text.
        if parts.get("history", 0.0) >= _TELLING and tool in self._usage:
            yield f"usually follows {history[-1]}" if history else "often comes first"
        if (lift := self._raised.get(tool)) is not None:
            yield f"feeds {lift.edge.after}"
        if learned.graph is not None:
            givers = {edge.before for edge in learned.graph.producers(tool)}
            if giver := next((each for each in reversed(history) if each in givers and each != tool), None):
                yield f"takes what {giver} gives"

    @cached_property
    def _servers(self) -> Collection[str]:
        """The servers whose names, or parts of them, the query has."""
        return [server for server, mention in self._corpus.server_names.find(self._text).items() if mention.names]

    @cached_property
    def _telling_terms(self) -> list[tuple[str, Impacts]]:
        """The terms of the query that tell most, best first, with the tools that have them."""
        impacts = self._corpus.lexical.impacts
        worth: dict[str, float] = {}
        having: dict[str, Impacts] = {}
        for line in self._lines:
            for term, weight in line.wanted.items():
                if known := impacts(term):
                    having[term] = known
                    worth[term] = max(weight * known.idf, worth.get(term, 0.0))
        return [(term, having[term]) for term in sorted(worth, key=worth.__getitem__, reverse=True)[:_MAX_REASON_TERMS]]

    @cached_property
    def _alike(self) -> dict[str, str]:
        """The terms that mean nearly the same as one of the query, as words."""
        return {term: word for line in self._lines for term, word in line.spelled.items()}

    @cached_property
    def _spelled(self) -> dict[str, str]:
        """The words of the query as they were written, by term."""
        found = spell_terms(self._text)
        return found | {each: piece.text for piece in self._pieces for each in terms(piece.text)}

    @cached_property
    def _in_english(self) -> dict[str, tuple[str, str]]:
        """The Chinese words of the query, by the terms of their English: with the English, and as they are written."""
        return {
            term: (f"{piece.text} ({piece.english})", piece.text)
            for piece in self._pieces
            for term in terms(piece.english or "")
        }

    @cached_property
    def _pieces(self) -> list[Piece]:
        """The Chinese words of the query that are known."""
        return translated(self._text)
