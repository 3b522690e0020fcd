"""A small method for tests of what surrounds methods: which tool was called after which, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretool.learning.training import Material, Progress, TooLittle
from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.model_format import Floats, pack, unpack
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

START = ""


class Counted(LearnedModel):
    """Predicts by counts: after the last call, whatever the words."""

    name = "dtdr"

    def __init__(self, counts: dict[str, dict[str, int]]) -> None:
        self.counts = counts
        self.tools: list[ToolId | None] = []

    @classmethod
    def loads(cls, model: bytes, prepare: object = None) -> Counted:
        header, _ = unpack(model, "dtdr", 1)
        return cls(header["counts"])

    def dumps(self) -> bytes:
        return pack("dtdr", 1, {"counts": self.counts}, {})

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        self.tools = list(tools)

    def score(self, query: Query, vector: Floats | None) -> Floats:
        return self.after(query.history, vector)[0]

    def after(
        self, history: Sequence[ToolId], vector: Floats | None = None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float]:
        counts = self.counts.get(history[-1] if history else START, {})
        total = max(sum(counts.values()), 1)
        chances = [counts.get(tool, 0) / total if tool is not None else 0.0 for tool in self.tools]
        return np.array(chances, np.float32), counts.get("END", 0) / total


class CountedMethod:
    """Trains it."""

    name = "dtdr"
    minimum = 4

    def train(self, material: Material, progress: Progress) -> bytes:
        if not any(episode.calls for episode in material.episodes):
            raise TooLittle("0 calls; it takes 1")
        counts: dict[str, Counter[str]] = {}
        for place, episode in enumerate(material.episodes):
            steps: list[Any] = [START, *episode.calls, *(["END"] if episode.ended else [])]
            for one, other in pairwise(steps):
                counts.setdefault(one, Counter())[other] += 1
            progress("counting", (place + 1) / len(material.episodes))
        return Counted({one: dict(others) for one, others in counts.items()}).dumps()


class Relations(LearnedModel):
    """Knows edges between tools, and scores nothing."""

    name = "tgr"
    adds_scores = False

    def __init__(self, edges: Sequence[tuple[str, str]]) -> None:
        self.graph = Graph(Edge(ToolId(one), ToolId(other), 0.9, (f"{other} takes it",)) for one, other in edges)

    @classmethod
    def loads(cls, model: bytes, prepare: object = None) -> Relations:
        header, _ = unpack(model, "tgr", 1)
        return cls([(one, other) for one, other in header["edges"]])


class Detector(Relations):
    """Knows a word by which a task needs no tool."""

    name = "masstool"
    adds_scores = True

    def __init__(self, word: str) -> None:
        self.word = word

    def needs_tool(self, vector: Floats | None, text: str = "") -> float | None:
        return 0.01 if self.word in text else 0.99


class Swamping(Relations):
    """Scores the tools it knows so high that they bury all others."""

    name = "masstool"
    adds_scores = True
    in_deviations = True

    def __init__(self, *known: str) -> None:
        self.known = known

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        self.knows = np.array([tool in self.known for tool in tools])

    def seen_tools(self) -> tuple[NDArray[np.bool_], float]:
        return self.knows, 0.0

    def score(self, query: Query, vector: Floats | None) -> Floats:
        return self.knows * np.linspace(9.0, 8.0, len(self.knows), dtype=np.float32)
