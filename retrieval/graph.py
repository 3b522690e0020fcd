"""The tool dependency graph (TGR, section 3.2): which tool has to come before which, how sure that is, and why.

Edges come from schemas (one tool takes what another gives) and from values seen to flow between calls; one pair has one
edge with all its evidence. A tool depends on another if it needs its result or needs it for prior verification (section
3.1): `before` is the prerequisite, `after` the dependant. Serving raises scores over the graph at query time instead of
mixing vectors (eq. 3), so a new tool changes no other. It also measured better at every cut (`docs/benchmarks.md`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from foretool.retrieval.document import GIVING, Fields, identifies
from foretool.storage.records import Flow, ToolId

LAMBDA = 0.9
"""The largest share of a tool's score that its prerequisite gets."""

_IDENTIFIER = 0.9
"""How sure an edge is over a field whose value only another call can give: a token, the id of a thing."""
FIELD = 0.5
"""How sure an edge is over any other field of one name, such as a date: the user often knows its value."""
_NAME = 0.3
"""How sure an edge is that names alone suggest (`docs/benchmarks.md`)."""
_OPTIONAL = 0.5
"""The share of that confidence that is left where the dependant can do without the field."""
_MOST_PRODUCERS = 8
"""If more tools could give a thing by their names, that says nothing about any one of them."""


class Edge(Struct, frozen=True):
    """`after` depends on `before`."""

    before: ToolId
    after: ToolId
    confidence: float
    """0 to 1."""
    evidence: tuple[str, ...]
    """For people, one line each."""


class Raised(Struct, frozen=True):
    """A prerequisite that is raised by a tool that depends on it."""

    score: float
    edge: Edge


class Graph:
    """Edges, indexed by both of their ends."""

    def __init__(self, edges: Iterable[Edge] = ()) -> None:
        self._before: dict[ToolId, list[Edge]] = defaultdict(list)
        self._after: dict[ToolId, list[Edge]] = defaultdict(list)
        self._edges = merge_edges(edges)
        for edge in self._edges:
            self._before[edge.after].append(edge)
            self._after[edge.before].append(edge)

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._edges)

    def producers(self, tool: ToolId) -> Sequence[Edge]:
        """Return the edges to what this tool depends on, the surest first."""
        return self._before.get(tool, ())

    def consumers(self, tool: ToolId) -> Sequence[Edge]:
        """Return the edges to what depends on this tool, the surest first."""
        return self._after.get(tool, ())

    def raised(self, scores: Mapping[ToolId, float]) -> dict[ToolId, Raised]:
        """Return the tools whose score goes up: score(A) = max(score(A), confidence x best score of a tool that depends
        on A). The confidence counts up to `LAMBDA`. Scores at or below 0 say "does not fit" and lift nothing."""
        found: dict[ToolId, Raised] = {}
        for after, score in scores.items():
            for edge in self.producers(after) if score > 0.0 else ():
                lifted = min(edge.confidence, LAMBDA) * score
                known = found.get(edge.before)
                if lifted > max(scores.get(edge.before, 0.0), known.score if known else 0.0):
                    found[edge.before] = Raised(lifted, edge)
        return found


def merge_edges(edges: Iterable[Edge]) -> list[Edge]:
    """Merge the edges of each pair: independent evidence adds up to 1 - (1 - a)(1 - b); the surest come first."""
    found: dict[tuple[ToolId, ToolId], Edge] = {}
    for edge in edges:
        key = (edge.before, edge.after)
        if (known := found.get(key)) is not None:
            confidence = 1.0 - (1.0 - known.confidence) * (1.0 - edge.confidence)
            edge = Edge(*key, confidence, tuple(dict.fromkeys((*known.evidence, *edge.evidence))))
        found[key] = edge
    return sorted(found.values(), key=lambda edge: (-edge.confidence, edge.before, edge.after))


def flow_edges(flows: Iterable[Flow], tools: Container[ToolId]) -> Iterator[Edge]:
    """Yield the edges that calls have shown; one that was seen n times has the confidence n / (n + 2)."""
    for flow in flows:
        if flow.before in tools and flow.after in tools:
            field = f"its {flow.field!r}" if flow.field else "a value of its answer"
            told = f"calls: {field} came back {flow.times} times as {flow.parameter!r}"
            yield Edge(flow.before, flow.after, flow.times / (flow.times + 2), (told,))


def schema_edges(tools: Sequence[Fields]) -> Iterator[Edge]:
    """Yield the edges that definitions suggest between tools of one upstream."""
    yield from _field_edges(tools)
    yield from _name_edges(tools)


def _field_edges(tools: Sequence[Fields]) -> Iterator[Edge]:
    """Yield an edge for each field that A gives and does not take, and that B takes."""
    givers: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    for tool in tools:
        for field in tool.gives - tool.takes.keys():
            givers[tool.upstream, field].append(tool)
    for tool in tools:
        for field, is_required in tool.takes.items():
            sure = FIELD if identifies(field) is None else _IDENTIFIER
            for giver in givers.get((tool.upstream, field), ()):
                if giver.id == tool.id:
                    continue
                need = "requires" if is_required else "takes"
                told = f"schema: {tool.id} {need} {field!r}, {giver.id} gives it"
                yield Edge(giver.id, tool.id, sure if is_required else sure * _OPTIONAL, (told,))


def _name_edges(tools: Sequence[Fields]) -> Iterator[Edge]:
    """B requires the identifier of a thing that A, of the same upstream and without an output schema, names."""
    givers: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    for tool in tools:
        if tool.verb in GIVING and not tool.gives:
            for noun in tool.nouns:
                givers[tool.upstream, noun].append(tool)
    for tool in tools:
        for field in (name for name, is_required in tool.takes.items() if is_required):
            thing = identifies(field)
            if not thing:
                continue
            named = givers.get((tool.upstream, thing.split()[-1]), ())
            able = [each for each in named if each.id != tool.id and not each.takes.get(field, False)]
            if len(able) <= _MOST_PRODUCERS:
                for giver in able:
                    told = f"names: {tool.id} requires {field!r}, and {giver.id} answers with such"
                    yield Edge(giver.id, tool.id, _NAME, (told,))
