"""Why a tool stands in a ranking, in words for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import nlargest

from foretool.retrieval.rankers.names import EXACT
from foretool.retrieval.scoring import Request
from foretool.retrieval.words import KINDRED_WORDS, spell_terms
from foretool.storage.records import ToolId

MAX_REASON_TERMS = 8
"""How many of the telling terms of a query are looked for in a tool."""
MAX_REASON_WORDS = 5
TELLING = 0.5
"""The least score of a learned part that is a reason."""


class Explanations:
    """Explains the tools of one request."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def reasons(self, slot: int, tool: ToolId) -> tuple[str, ...]:
        """The reasons for one tool, the strongest kind first."""
        return tuple(self._reasons(slot, tool))

    def _reasons(self, slot: int, tool: ToolId) -> Iterator[str]:
        request = self._request
        if slot in request.named:
            yield "name" if request.named[slot] > EXACT - 1.0 else "similar name"
        impacts = request.corpus.lexical.impacts
        has = [term for term in self._terms if (found := impacts(term)) and found.of(slot)]
        if said := [self._spelled[term] for term in has if term in self._spelled][:MAX_REASON_WORDS]:
            yield "words: " + ", ".join(dict.fromkeys(said))
        elif has:
            yield "words alike: " + ", ".join(KINDRED_WORDS[term] for term in has[:MAX_REASON_WORDS])
        elif request.sum is not None and request.dense is not None:
            yield "meaning"
        yield from self._learned_reasons(request.sum.of(slot) if request.sum is not None else {}, tool)
        if tool in request.usage:
            yield "used before"
        if any(slot in request.corpus.slots_of.get(server, ()) for server in request.query.servers_in_use):
            yield "server in use"

    def _learned_reasons(self, parts: Mapping[str, float], tool: ToolId) -> Iterator[str]:
        request, history = self._request, self._request.query.history
        if request.learned is None:
            return
        if parts.get("tasks", 0.0) >= TELLING:
            yield "like an earlier task"
        if parts.get("history", 0.0) >= TELLING:
            yield f"usually follows {history[-1]}" if history else "often comes first"
        if (lift := request.raised.get(tool)) is not None:
            yield f"feeds {lift.edge.after}"
        if (graph := request.learned.graph) is not None:
            givers = {edge.before for edge in graph.producers(tool)}
            if giver := next((each for each in reversed(history) if each in givers and each != tool), None):
                yield f"takes what {giver} gives"

    @cached_property
    def _terms(self) -> list[str]:
        """The terms that tell most, best first."""
        impacts = self._request.corpus.lexical.impacts
        worth: dict[str, float] = {}
        for line in self._request.lines:
            for term, weight in line.wanted.items():
                if known := impacts(term):
                    worth[term] = max(weight * known.idf, worth.get(term, 0.0))
        return nlargest(MAX_REASON_TERMS, worth, key=worth.__getitem__)

    @cached_property
    def _spelled(self) -> dict[str, str]:
        """The words of the query as they were written, by term."""
        return spell_terms("\n".join(line.text for line in self._request.lines))
