"""What was learned, over one corpus: each model's scores as a named part of the sum, and what they predict.

A model scores every slot; its z-scores over the pool, cut at `CLIP`, times a weight are its part. A prediction of one
tool out of hundreds is a sharp peak whose z-score grows with the square root of the pool, hence the cut. The weights
of all parts are refitted from the log (`Factors`), with the shipped ones as prior.

Imports numpy: only who has a model imports this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.blend import Floats, standard
from foretool.retrieval.list_growth import Growth
from foretool.retrieval.model_format import Learned, Reading
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.graph import Graph

PARTS: Final[Mapping[str, str]] = {"dtdr": "history", "tgr": "graph", "masstool": "tasks", "ports": "trained"}
"""The part of the sum that each method has."""
WEIGHTS: Final[Mapping[str, float]] = {"history": 0.6}
"""What a standard deviation of each part counts; an encoder's is 0.65 to 0.7, the words' 0.35."""
GRAPH: Final = "tgr"
"""The method that knows which tools need others."""
LEAST_NEW, MOST_NEW = 0.25, 0.5
"""Share of the places that contenders have of which nothing was learned. Of the tools of 100 tasks of bfcl_multi_turn
(train) after 100, words alone, among the first six, seen / unseen: no model .69 / .89, masstool .93 / .14; with this at
0.2 .92 / .65, at 0.25 .91 / .73, at 0.34 .90 / .78."""
CLIP: Final = 8.0
"""Standard deviations."""
NONE: Final[Mapping[str, str]] = {}


class Factors(Struct, frozen=True):
    """What the log made of the shipped weights: a factor for each part, for one set of encoders."""

    encoders: str = ""
    """Their names joined by `+`; with others the factors say nothing."""
    factors: dict[str, float] = {}


@runtime_checkable
class Foretelling(Protocol):
    """A model that says what comes next."""

    def after(
        self, history: Sequence[ToolId], vector: Floats | None = None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float]:
        """Probability of each slot to be called next, and of the task being done; together 1 at most."""
        ...


@runtime_checkable
class Related(Protocol):
    """A model that knows which tools need others."""

    @property
    def graph(self) -> Graph: ...


@runtime_checkable
class Detecting(Protocol):
    """A model that says whether a task needs a tool at all."""

    def needs_tool(self, vector: Floats | None, text: str = "") -> float | None:
        """Probability; None where nothing is known."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A model whose scores are what to add to a sum of z-scores: their height says how far it is to be believed."""

    @property
    def in_deviations(self) -> Literal[True]: ...


@runtime_checkable
class ReadingAll(Protocol):
    """A model whose vector of a task is that of all encoders, one after the other; the others get the first's."""

    @property
    def reads_all(self) -> Literal[True]: ...


@runtime_checkable
class Knowing(Protocol):
    """A model that says which tools it has seen, and how often others are needed."""

    @property
    def knows(self) -> NDArray[np.bool_]: ...

    @property
    def novelty(self) -> float: ...


class Experience:
    """The models that are served; made anew whenever other ones are to be."""

    def __init__(
        self,
        models: Mapping[str, Learned],
        factors: Factors | None = None,
        growth: Growth | None = None,
        trained_with: Mapping[str, str] = NONE,
    ) -> None:
        """`models` by method; `growth`: how lists grow by what these score; `trained_with`: by method, the encoders
        joined by `+`, where it is known. A model is given no vectors of others: it goes by words and calls then."""
        self.models = dict(models)
        self._trained_with = trained_with
        self._foreign: frozenset[str] = frozenset()
        """Models that were trained with other encoders than those of the corpus."""
        self.factors = factors or Factors()
        self.growth = growth
        self.live: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which hold a tool."""
        self._aligned: tuple[object, ...] = ()

    def align(
        self, tools: Sequence[ToolId | None], stamp: tuple[object, ...], vectors: Floats | None, encoders: str = ""
    ) -> None:
        """Follow a corpus: the tool by slot; `stamp` says which corpus and encoder this is, to tell when it is known
        already; `vectors` (slots, dimension) of the first of the encoders."""
        self._aligned = stamp
        self._foreign = frozenset(kind for kind in self.models if encoders and self._is_foreign(kind, encoders))
        self.live = np.asarray([tool is not None for tool in tools], np.bool_)
        for kind, model in self.models.items():
            model.align(tools, None if kind in self._foreign else vectors)

    def _is_foreign(self, kind: str, encoders: str) -> bool:
        return isinstance(self.models[kind], ReadingAll) and self._trained_with.get(kind, "") not in ("", encoders)

    def _read(self, kind: str, reading: Reading | None) -> Floats | None:
        """The vector of a task that a model is given, (dimension,)."""
        return None if kind in self._foreign else read_by(self.models[kind], reading)

    def follows(self, stamp: tuple[object, ...]) -> bool:
        """Whether it was aligned with that last."""
        return self._aligned == stamp

    def parts(self, query: Query, reading: Reading | None) -> dict[str, Floats]:
        """What each model adds to the score of every slot; (slots,) each. The graph adds nothing by itself: it lifts
        what the sum has found (`Graph.raised`)."""
        found: dict[str, Floats] = {}
        for kind, model in self.models.items():
            if kind == GRAPH:
                continue
            scores = np.asarray(model.score(query, self._read(kind, reading)), np.float32)
            if scores.any():
                part = PARTS.get(kind, kind)
                if not isinstance(model, Measured):
                    cut = np.clip(standard(scores, self.live), -CLIP, CLIP)
                    scores = np.float32(WEIGHTS.get(part, 1.0)) * cut
                found[part] = scores
        return found

    def newcomers(self) -> tuple[NDArray[np.bool_], float] | None:
        """(slots,): the tools that a model of `in_deviations` has never seen, and how often such a one is needed. Its
        scores would bury them otherwise."""
        for model in self.models.values():
            if isinstance(model, Measured) and isinstance(model, Knowing):
                return self.live & ~model.knows, min(max(model.novelty, LEAST_NEW), MOST_NEW)
        return None

    def factors_for(self, encoders: str) -> Mapping[str, float]:
        """What to multiply the parts by, with these encoders."""
        return self.factors.factors if self.factors.encoders == encoders else {}

    def after(
        self, history: Sequence[ToolId], reading: Reading | None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float] | None:
        """As `Foretelling.after`; None where no model can say."""
        for kind, model in self.models.items():
            if isinstance(model, Foretelling):
                return model.after(history, self._read(kind, reading), lines)
        return None

    @property
    def graph(self) -> Graph | None:
        """Which tools need others."""
        model = self.models.get(GRAPH)
        return model.graph if isinstance(model, Related) else None

    def needs_tool(self, reading: Reading | None, text: str = "") -> float | None:
        """As `Detecting.needs_tool`."""
        for kind, model in self.models.items():
            if isinstance(model, Detecting):
                return model.needs_tool(self._read(kind, reading), text)
        return None


def read_by(model: object, reading: Reading | None) -> Floats | None:
    """The vector of a task that a model of these encoders is given, (dimension,)."""
    if not reading:
        return None
    found: Floats = np.concatenate(reading) if isinstance(model, ReadingAll) else reading[0]
    return found
