"""Reads what DTDR is trained on: demonstrations with the vectors of their tasks, and the catalog that it has to rank.

A demonstration says which calls were acceptable at each step, and in which orders they may come.

The gold plan of a task is a DAG over its calls (DTDR, section 5): a call is acceptable once every call that it depends
on is done, and END is acceptable once all are done. Calls are classes here, numbers from 0; END is one more than the
last class.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from foretool.learning.training import Embed, Material
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats
from foretool.storage.records import Episode, ToolId

LONGEST = 40
"""Calls of one demonstration at most, since the acceptable calls are computed at each of them."""


class PredictionStep(NamedTuple):
    """One prediction: the calls so far, and the calls that may come next."""

    history: tuple[int, ...]
    acceptable: tuple[int, ...]
    """Distinct classes in rising order."""


class Demonstration(Struct, frozen=True):
    """A task and the calls that solved it."""

    calls: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    """By place in `calls`, the places that have to come first."""
    task: str = ""
    """The task in words, "" if it is not known."""
    ended: bool = True
    """Whether the task was done after the last call."""
    earlier: tuple[int, ...] = ()
    """Calls of the same conversation before this task."""

    def steps(self, end: int, order: Sequence[int] | None = None) -> Iterator[PredictionStep]:
        """Yield every prediction of the walk through the places in `order`, as called unless given.

        `end` is the class of END. A walk whose end is not known has no END step.
        """
        done: set[int] = set()
        history = list(self.earlier)
        for place in order if order is not None else range(len(self.calls)):
            yield PredictionStep(tuple(history), self._open(done))
            done.add(place)
            history.append(self.calls[place])
        if self.ended:
            yield PredictionStep(tuple(history), (end,))

    @property
    def has_orders(self) -> bool:
        """Whether the dependencies may allow another order than the one that was walked."""
        return any(first != ((place - 1,) if place else ()) for place, first in enumerate(self.after))

    def shuffled(self, draw: random.Random) -> list[int]:
        """Draw an order of the places that every dependency allows."""
        if not self.has_orders:
            return list(range(len(self.calls)))
        left = set(range(len(self.calls)))
        order: list[int] = []
        while left:
            free = sorted(place for place in left if left.isdisjoint(self.after[place]))
            order.append(draw.choice(free))
            left.remove(order[-1])
        return order

    def _open(self, done: set[int]) -> tuple[int, ...]:
        """Return the classes of the calls that are not done and whose dependencies are done."""
        places = (place for place in range(len(self.calls)) if place not in done and done.issuperset(self.after[place]))
        return tuple(sorted({self.calls[place] for place in places}))


def dependencies(size: int, edges: Sequence[tuple[int, int]] | None) -> tuple[tuple[int, ...], ...]:
    """Return by place, the places that have to come first; a chain if only the order is known.

    An edge that does not point forward is left out, since it would close a cycle with the order that was walked.
    """
    if edges is None:
        return tuple((place - 1,) if place else () for place in range(size))
    first: list[set[int]] = [set() for _ in range(size)]
    for source, target in edges:
        if 0 <= source < target < size:
            first[target].add(source)
    return tuple(tuple(sorted(each)) for each in first)


def demonstrations(episodes: Sequence[Episode], class_of: Mapping[ToolId, int]) -> list[Demonstration]:
    """Read the episodes whose every tool has a class; others would teach a false order.

    A long episode comes in pieces that know the calls before them.
    """
    return [
        piece
        for episode in episodes
        if all(call in class_of for call in episode.calls)
        for piece in _pieces(episode, [class_of[call] for call in episode.calls])
    ]


def _pieces(episode: Episode, calls: Sequence[int]) -> Iterator[Demonstration]:
    for start in range(0, len(calls), LONGEST):
        piece = tuple(calls[start : start + LONGEST])
        edges = episode.edges and [(first - start, second - start) for first, second in episode.edges]
        yield Demonstration(
            calls=piece,
            after=dependencies(len(piece), edges),
            task=episode.tasks[0] if episode.tasks else "",
            ended=episode.ended and start + LONGEST >= len(calls),
            earlier=tuple(calls[max(start - LONGEST, 0) : start]),
        )


class TrainingSet(NamedTuple):
    tools: tuple[ToolId, ...]
    """By class."""
    demonstrations: Sequence[Demonstration]
    vectors: Floats
    """(demonstrations, dimension), zeros where the task is not known."""

    def part(self, places: Sequence[int]) -> TrainingSet:
        """Return some of the demonstrations, with only the tools that occur in them."""
        chosen = [self.demonstrations[place] for place in places]
        used = dict.fromkeys(call for each in chosen for call in (*each.earlier, *each.calls))
        number = {call: at for at, call in enumerate(used)}
        renumbered = [
            replace(
                each,
                calls=tuple(number[call] for call in each.calls),
                earlier=tuple(number[call] for call in each.earlier),
            )
            for each in chosen
        ]
        return TrainingSet(tuple(self.tools[call] for call in used), renumbered, self.vectors[list(places)])


class ToolVectors(NamedTuple):
    """The tools of the catalog that a model ranks, and the vectors of their texts."""

    tools: Sequence[ToolId]
    vectors: Floats | None
    """(tools, dimension) of their texts by the first encoder; None without an encoder."""

    def without(self, gone: Container[ToolId]) -> ToolVectors:
        """Return the catalog before these tools were installed."""
        kept = [place for place, tool in enumerate(self.tools) if tool not in gone]
        return ToolVectors([self.tools[place] for place in kept], None if self.vectors is None else self.vectors[kept])

    def texts(self, tools: Sequence[ToolId]) -> dict[int, Floats]:
        """Return the vectors of those of these tools that are in the catalog, by their place in `tools`."""
        if self.vectors is None:
            return {}
        place_of = {tool: place for place, tool in enumerate(self.tools)}
        return {number: self.vectors[place_of[tool]] for number, tool in enumerate(tools) if tool in place_of}


def training_set_of(material: Material) -> TrainingSet:
    """Return a training set of all episodes with calls."""
    episodes = [episode for episode in material.episodes if episode.calls]
    tools = tuple(dict.fromkeys(call for episode in episodes for call in episode.calls))
    found = demonstrations(episodes, {tool: number for number, tool in enumerate(tools)})
    return TrainingSet(tools, found, task_vectors([each.task for each in found], material.queries))


def task_vectors(tasks: Sequence[str], embed: Embed | None) -> Floats:
    """Return vectors (tasks, dimension); zeros for an empty task; dimension 0 without an encoder or a text."""
    known = list(dict.fromkeys(task for task in tasks if task))
    if embed is None or not known:
        return np.zeros((len(tasks), 0), np.float32)
    vectors = unit(embed(known))
    rows = {task: row for row, task in enumerate(known)}
    nothing = np.zeros((1, vectors.shape[1]), np.float32)
    return np.concatenate([vectors, nothing])[[rows.get(task, -1) for task in tasks]]


def tool_vectors_of(material: Material) -> ToolVectors:
    """Embed the texts of the catalog."""
    tools = [tool.id for tool in material.tools]
    if material.documents is None:
        return ToolVectors(tools, None)
    texts = [embedded_text(document(tool, material.server_texts.get(tool.upstream, ""))) for tool in material.tools]
    return ToolVectors(tools, material.documents(texts))
