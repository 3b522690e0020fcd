"""The learned models over one corpus: what each adds to a score, and what they predict.

A model scores every slot. Its part of the sum is the z-scores of that over the pool, cut at `CLIP`, times a weight. A
prediction of one tool out of hundreds is a sharp peak whose z-score grows with the square root of the pool; therefore
the cut. The log refits the weights of all parts (`Factors`), with the shipped weights as prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.methods import METHODS
from foretool.retrieval.model_format import Floats, Reading
from foretool.retrieval.ranking import Query
from foretool.retrieval.score_sum import z_scores
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.graph import Graph

WEIGHTS: Final[Mapping[str, float]] = {"history": 0.8}
"""What a standard deviation of each part counts; an encoder's counts 0.65 to 0.7, the words' 0.35."""
_LEAST_NEW, _MOST_NEW = 0.25, 0.5
"""Which share of the first places goes to contenders that no model has seen (`docs/benchmarks.md`)."""
CLIP: Final = 8.0
"""The most standard deviations that a model's z-score counts."""


class Factors(Struct, frozen=True):
    """A factor for each part of a score, refitted for one set of encoders."""

    encoders: str = ""
    """Names of the encoders, joined by `+`; with others the factors mean nothing."""
    factors: dict[str, float] = {}


class LearnedModel(Protocol):
    """A trained model over a corpus; subclasses override what they can answer. Tools newer than training score 0."""

    name: ClassVar[str]
    """The method, as in `methods.METHODS`."""
    adds_scores: ClassVar[bool] = True
    """Whether its scores take part in the sum."""
    in_deviations: ClassVar[bool] = False
    """Whether its scores are added as they are: their height says how far the model believes itself. The scores of
    other models are scaled to z-scores first."""
    reads_all_encoders: ClassVar[bool] = False
    """Whether it reads a task by the vectors of all encoders, one after the other; other models get the first's."""
    graph: Graph | None = None
    """Which tools need others."""
    size: int = 0
    """The number of slots."""
    encoders: str = ""
    """The encoders that rank beside it, joined by `+`; set before `align`."""

    @classmethod
    def loads(cls, model: bytes) -> Self:
        """Read a model. Raises `ModelError`."""

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        """Follow a corpus: the tool by slot, None where a tool was dropped; `vectors` (slots, dimension) of the first
        encoder, None without one."""
        self.size = len(tools)

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """Score every slot, 0 for what is not known; (slots,). `vector` (dimension,) is the query's, None without words
        or encoder."""
        return np.zeros(self.size, np.float32)

    def familiarity(self, vector: Floats | None, lines: Sequence[str]) -> float:
        """Return how like a past task these lines are, 0 to 1: so much counts what the model says of them. 1 without
        lines; `vector` as for `score`."""
        return 1.0

    def after(
        self, history: Sequence[ToolId], vector: Floats | None = None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float] | None:
        """Return the probability of each slot to be called next (slots,), and that of the task being done; together 1
        at most. `history`: the calls so far, the oldest first. None for a model that predicts no calls."""
        return None

    def needs_tool(self, vector: Floats | None, text: str = "") -> float | None:
        """Return the probability that a task needs a tool at all, 0 to 1. `vector` as for `score`."""
        return None

    def seen_tools(self) -> tuple[NDArray[np.bool_], float] | None:
        """Return which slots the model has seen in training (slots,), and which share of tasks takes another tool."""
        return None


class LearnedModels:
    """Learned models that rank together. Their set never changes: other models make another object."""

    def __init__(
        self,
        models: Mapping[str, LearnedModel],
        factors: Factors | None = None,
        trained_with: Mapping[str, str] | None = None,
    ) -> None:
        """`models` by method; `trained_with` names the encoders of each method, joined by `+`, where they are known. A
        model gets no vectors of other encoders than those."""
        self.models = dict(models)
        self._trained_with = trained_with or {}
        self._foreign: frozenset[str] = frozenset()
        """The models that were trained with other encoders than those of the corpus."""
        self.factors = factors or Factors()
        self.live: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which hold a tool."""
        self.stamp: tuple[object, ...] = ()
        """The stamp of the last `align`."""

    def align(
        self, tools: Sequence[ToolId | None], stamp: tuple[object, ...], vectors: Floats | None, encoders: str = ""
    ) -> None:
        """Follow a corpus, as `LearnedModel.align` says; `stamp` identifies the corpus and the encoders."""
        self.stamp = stamp
        self._foreign = frozenset(
            kind
            for kind, model in self.models.items()
            if encoders and model.reads_all_encoders and self._trained_with.get(kind, "") not in ("", encoders)
        )
        self.live = np.asarray([tool is not None for tool in tools], np.bool_)
        for kind, model in self.models.items():
            model.encoders = encoders
            model.align(tools, None if kind in self._foreign else vectors)

    def parts(self, query: Query, reading: Reading | None) -> dict[str, Floats]:
        """Return what each model adds to the score of every slot, by the name of its part; (slots,) each."""
        found: dict[str, Floats] = {}
        for kind, model in self.models.items():
            if not model.adds_scores:
                continue
            vector = self._vector(kind, reading)
            if not (counts := model.familiarity(vector, query.lines)):
                continue
            scores = np.asarray(model.score(query, vector), np.float32)
            if scores.any():
                part = METHODS[kind].part
                if not model.in_deviations:
                    cut = np.clip(z_scores(scores, self.live), -CLIP, CLIP)
                    scores = np.float32(WEIGHTS.get(part, 1.0)) * cut
                found[part] = np.float32(counts) * scores
        return found

    def newcomers(self) -> tuple[NDArray[np.bool_], float] | None:
        """Return which slots hold tools that came after training (slots,), and which share of the first places is kept
        for them. None where no model's scores would bury them."""
        for model in self.models.values():
            if model.in_deviations and (seen := model.seen_tools()) is not None:
                return self.live & ~seen[0], min(max(seen[1], _LEAST_NEW), _MOST_NEW)
        return None

    def factors_for(self, encoders: str) -> Mapping[str, float]:
        """Return what to multiply the parts by, with these encoders."""
        return self.factors.factors if self.factors.encoders == encoders else {}

    def after(
        self, history: Sequence[ToolId], reading: Reading | None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float] | None:
        """Return the next calls that the first model with such a prediction expects, as `LearnedModel.after` gives
        them; None without one."""
        for kind, model in self.models.items():
            vector = self._vector(kind, reading)
            if (found := model.after(history, vector, lines)) is not None:
                chances, end = found
                # Before the first call nothing but its words tells what a task takes.
                return found if history else (chances * np.float32(model.familiarity(vector, lines)), end)
        return None

    def needs_tool(self, reading: Reading | None, text: str = "") -> float | None:
        """Return the probability that a task needs a tool at all, by the first model that predicts it; else None."""
        answers = (model.needs_tool(self._vector(kind, reading), text) for kind, model in self.models.items())
        return next((each for each in answers if each is not None), None)

    @property
    def graph(self) -> Graph | None:
        """The graph of dependencies between tools, from the first model that has one; None without one."""
        return next((model.graph for model in self.models.values() if model.graph is not None), None)

    def _vector(self, kind: str, reading: Reading | None) -> Floats | None:
        """Return the vector of a task as this model reads it, (dimension,)."""
        if kind in self._foreign or not reading:
            return None
        return np.concatenate(reading) if self.models[kind].reads_all_encoders else reading[0]
