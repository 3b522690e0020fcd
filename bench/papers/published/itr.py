"""ITR as published: the scores of eq. 3, and Algorithm 1 over two corpora.

The algorithm selects, assembles and asks, and widens once where the tools do not suffice. Where the paper names no
number (weights, M, B, tau, the factor of an expansion) `Parameters` has that of its authors' implementation
(github.com/uriafranko/ITR), which also brings BM25 into the range of a cosine by its best score.

`server/discovery/agent_step.py` serves the same loop over the proxy's own ranking and catalog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.fragments import Fragment, is_overlay
from foretool.retrieval.itr import (
    EXPANSION,
    THRESHOLD,
    Candidate,
    Fallback,
    Kind,
    Selected,
    Signatures,
    assemble,
    select,
    summary,
    widen,
)
from foretool.retrieval.tokens import estimate
from foretool.retrieval.words import terms

T = TypeVar("T")


class Parameters(Struct, frozen=True, kw_only=True):
    """The numbers that the method leaves open."""

    dense: float = 0.4
    sparse: float = 0.3
    cross: float = 0.3
    """w1, w2, w3 of eq. 3."""
    top_instructions: int = 20
    top_tools: int = 15
    """M_A, M_B."""
    instructions: int = 4
    tools: int = 2
    """K_A, K_B (section 7: "start with K_A = 4, K_B = 2")."""
    budget: int = 2000
    """B: the tokens of everything except the user's words and the history."""
    threshold: float = THRESHOLD
    """tau."""
    expansion: float = EXPANSION
    """What K_B and B are multiplied by when the tools do not suffice."""


PUBLISHED: Final = Parameters()


def per_token(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with their gain per token, which eq. 4 fills the budget by."""
    return [replace(each, gain=each.gain / max(each.tokens, 1)) for each in candidates]


def task_signature(query: str) -> tuple[str, ...]:
    """Return the words of a task without their order and endings; tasks with the same signature count as the same
    task."""
    return tuple(sorted(set(terms(query))))


# Scores, section 3.3


def hybrid(
    cosines: Sequence[float],
    words: Sequence[float],
    cross: Sequence[float] | None = None,
    parameters: Parameters = PUBLISHED,
) -> list[float]:
    """Eq. 3: w1 cos + w2 BM25 + w3 CE, item by item; the last part is left out without a cross-encoder."""
    scores = [parameters.dense * cosine + parameters.sparse * word for cosine, word in zip(cosines, words, strict=True)]
    if cross is None:
        return scores
    return [score + parameters.cross * judged for score, judged in zip(scores, cross, strict=True)]


def unit(scores: Sequence[float]) -> list[float]:
    """Over the best one: BM25 has no upper bound, and unscaled it would drown the cosine."""
    top = max(scores, default=0.0)
    return [score / top for score in scores] if top > 0.0 else [0.0] * len(scores)


def best(scores: Sequence[float], most: int) -> list[int]:
    """Return the places of the highest scores, best first; of equals the first comes first."""
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:most]


class Scorer(Protocol):
    """The three signals of eq. 3 over one corpus, aligned with its items."""

    def cosines(self, query: str) -> Sequence[float]: ...

    def words(self, query: str) -> Sequence[float]:
        """BM25."""
        ...

    def cross(self, query: str, places: Sequence[int]) -> Sequence[float] | None:
        """Return the cross-encoder's judgement of these items, 0 to 1; None without one."""
        ...


def retrieve(query: str, scorer: Scorer, most: int, parameters: Parameters = PUBLISHED) -> list[tuple[int, float]]:
    """Algorithm 1, lines 1 to 3: the best M by cosine and BM25, re-ranked by all of eq. 3; places with their scores."""
    cosines, words = scorer.cosines(query), unit(scorer.words(query))
    head = best(hybrid(cosines, words, None, parameters), most)
    judged = scorer.cross(query, head)
    scores = hybrid([cosines[place] for place in head], [words[place] for place in head], judged, parameters)
    return [(head[place], scores[place]) for place in best(scores, most)]


# Algorithm 1


class Item(Struct, frozen=True):
    """An instruction or a tool of a corpus."""

    id: str
    text: str
    """As it stands in the prompt."""
    tokens: int


class Corpora(Struct, frozen=True):
    """What ITR retrieves from: scorers are aligned with their items."""

    fragments: tuple[Fragment, ...]
    instruction_scorer: Scorer
    tools: tuple[Item, ...]
    tool_scorer: Scorer
    version: object = 0
    """Another one says that the content has changed."""


class Telemetry(Struct, frozen=True):
    """What one step did (12)."""

    instructions: tuple[str, ...]
    tools: tuple[str, ...]
    tokens: int
    sufficiency: tuple[float, ...]
    """What the model rated, pass by pass."""
    fallback: Fallback
    cached: bool
    error: str


class Reply(Struct, Generic[T], frozen=True):
    """What a model says, and how far it finds the tools it saw sufficient, 0 to 1."""

    value: T
    sufficiency: float


Model = Callable[[str, Sequence[Item]], Awaitable[Reply[T]]]
"""Prompt and exposed tools to a reply."""


class Itr:
    """Algorithm 1 over two corpora."""

    def __init__(
        self,
        corpora: Corpora,
        parameters: Parameters = PUBLISHED,
        pins: Callable[[str], Sequence[str]] = lambda _: (),
        report: Callable[[Telemetry], object] = lambda _: None,
        *,
        per_token: bool = True,
    ) -> None:
        """`pins`: tools that are always eligible for this query (3.7); see `itr.Domains`. `per_token`: whether the
        budget is filled by score per token (line 4) or by score."""
        self.corpora = corpora
        self._per_token = per_token
        self.parameters = parameters
        self._pins = pins
        self._report = report
        self._cache: Signatures[tuple[Selected, list[Candidate]]] = Signatures()

    def step(self, query: str) -> tuple[Selected, list[Candidate], bool]:
        """Run lines 1 to 4; return what is shown, what was ranked, and whether a task like it was remembered."""
        pinned = self._pinned(query)
        key = (task_signature(query), tuple(each.id for each in pinned))
        if (known := self._cache.get(key, self.corpora.version)) is not None:
            return (*known, True)
        candidates = self._candidates(query)
        parameters = self._parameters()
        most: dict[Kind, int] = {"instruction": parameters.instructions, "tool": parameters.tools}
        selected = select(candidates, parameters.budget, most, pinned)
        self._cache.put(key, self.corpora.version, (selected, candidates))
        return selected, candidates, False

    def widen(self, query: str, selected: Selected, candidates: Sequence[Candidate]) -> Selected:
        """Run line 8: what is shown where the model finds that the tools do not suffice."""
        parameters = self._parameters()
        return widen(selected, candidates, self._pinned(query), parameters.budget, parameters.tools)

    def tokens(self, selected: Selected) -> int:
        """Return the tokens of a step: overlay and routing note, instructions, tools."""
        return self.parameters.budget - self._parameters().budget + selected.tokens

    async def answer(self, query: str, model: Model[T]) -> T:
        """Run lines 4 to 11. What the model raises is reported and goes on to the caller."""
        selected, candidates, cached = self.step(query)
        ratings: list[float] = []
        try:
            reply = await model(self.prompt(selected), self._shown(selected))
            ratings.append(reply.sufficiency)
            if reply.sufficiency < self.parameters.threshold:
                selected = self.widen(query, selected, candidates)
                reply = await model(self.prompt(selected), self._shown(selected))
                ratings.append(reply.sufficiency)
        except Exception as error:
            self._tell(selected, ratings, cached, type(error).__name__)
            raise
        self._tell(selected, ratings, cached, "")
        return reply.value

    def prompt(self, selected: Selected) -> str:
        """Line 5."""
        shown = [each for each in self.corpora.fragments if each.id in selected.instructions]
        prompt = assemble([*self._overlay(), *shown], self._texts(selected))
        if selected.fallback != "discover":
            return prompt
        hidden = (tool.id for tool in self.corpora.tools if tool.id not in selected.tools)
        return f"{prompt}\n\n{summary(hidden, self.parameters.budget, estimate)}"

    def _candidates(self, query: str) -> list[Candidate]:
        corpora, parameters = self.corpora, self.parameters
        fragments = retrieve(query, corpora.instruction_scorer, parameters.top_instructions, parameters)
        tools = retrieve(query, corpora.tool_scorer, parameters.top_tools, parameters)
        texts, items = corpora.fragments, corpora.tools
        found = [
            *(
                Candidate(texts[place].id, "instruction", texts[place].tokens, score)
                for place, score in fragments
                if texts[place] not in self._overlay()
            ),
            *(Candidate(items[place].id, "tool", items[place].tokens, score) for place, score in tools),
        ]
        return per_token(found) if self._per_token else found

    def _overlay(self) -> list[Fragment]:
        """Return whether a fragment is always on, whatever the query."""
        return [each for each in self.corpora.fragments if is_overlay(each)]

    def _parameters(self) -> Parameters:
        """With what the budget leaves after overlay and routing note."""
        return replace(self.parameters, budget=self.parameters.budget - estimate(assemble(self._overlay())))

    def _pinned(self, query: str) -> list[Candidate]:
        wanted = self._pins(query)
        return [Candidate(item.id, "tool", item.tokens, 1.0) for item in self.corpora.tools if item.id in wanted]

    def _shown(self, selected: Selected) -> list[Item]:
        by_id = {item.id: item for item in self.corpora.tools}
        return [by_id[id] for id in selected.tools]

    def _texts(self, selected: Selected) -> list[str]:
        return [item.text for item in self._shown(selected)]

    def _tell(self, selected: Selected, ratings: Sequence[float], cached: bool, error: str) -> None:
        self._report(
            Telemetry(
                selected.instructions, selected.tools, selected.tokens, tuple(ratings), selected.fallback, cached, error
            )
        )
