"""What DTDR is trained on: demonstrations with the vectors of their tasks, and the catalog that it has to rank."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import Embed, Material
from foretool.retrieval.training.demonstrations import Demonstration, demonstrations
from foretool.storage.records import ToolId


class TrainingSet(NamedTuple):
    """Demonstrations, and their tasks as vectors."""

    tools: tuple[ToolId, ...]
    """By class."""
    demonstrations: Sequence[Demonstration]
    vectors: Floats
    """(demonstrations, dimension), zeros where the task is not known."""

    def part(self, places: Sequence[int]) -> TrainingSet:
        """Returns some of the demonstrations, with only the tools that occur in them."""
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
        """Returns the catalog before these tools were installed."""
        kept = [place for place, tool in enumerate(self.tools) if tool not in gone]
        return ToolVectors([self.tools[place] for place in kept], None if self.vectors is None else self.vectors[kept])

    def texts(self, tools: Sequence[ToolId]) -> dict[int, Floats]:
        """The vectors of those of these tools that are in the catalog, by their place in `tools`."""
        if self.vectors is None:
            return {}
        place_of = {tool: place for place, tool in enumerate(self.tools)}
        return {number: self.vectors[place_of[tool]] for number, tool in enumerate(tools) if tool in place_of}


def training_set_of(material: Material) -> TrainingSet:
    """Reads every episode with calls."""
    episodes = [episode for episode in material.episodes if episode.calls]
    tools = tuple(dict.fromkeys(call for episode in episodes for call in episode.calls))
    found = demonstrations(episodes, {tool: number for number, tool in enumerate(tools)})
    return TrainingSet(tools, found, task_vectors([each.task for each in found], material.readings or material.queries))


def task_vectors(tasks: Sequence[str], embed: Embed | None) -> Floats:
    """(tasks, dimension); zeros for an empty task; dimension 0 without an encoder, or if every task is empty."""
    known = list(dict.fromkeys(task for task in tasks if task))
    if embed is None or not known:
        return np.zeros((len(tasks), 0), np.float32)
    vectors = unit(embed(known))
    rows = {task: row for row, task in enumerate(known)}
    nothing = np.zeros((1, vectors.shape[1]), np.float32)
    return np.concatenate([vectors, nothing])[[rows.get(task, -1) for task in tasks]]


def tool_vectors_of(material: Material) -> ToolVectors:
    """Embeds the texts of the catalog."""
    tools = [tool.id for tool in material.tools]
    if material.documents is None:
        return ToolVectors(tools, None)
    texts = [embedded_text(document(tool, material.server_texts.get(tool.upstream, ""))) for tool in material.tools]
    return ToolVectors(tools, material.documents(texts))
