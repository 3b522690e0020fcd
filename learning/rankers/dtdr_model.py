"""The model of DTDR as training writes it and serving reads it: its parts, their shapes, its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from foretool.learning.linear_maps import PLACES as TEXT_PLACES
from foretool.learning.linear_maps import Lsa, NextText
from foretool.retrieval.model_format import Floats, ModelError, pack, unpack
from foretool.storage.records import ToolId

METHOD = "dtdr"
VERSION = 3
LAST = 3
"""How many of the latest calls are told apart; the paper's history length l, beyond which gains taper off."""
MOST_HISTORY = 20
"""Older calls are not read."""
PLACES = 8
"""How many counts of calls are told apart."""
UNKNOWN = -3
"""The class of a tool without a class: its call counts, and nothing else is known about it."""

PARTS = (
    "network", "neighbours", "graph", "prior", "meaning", "name", "called", "kin", "aim", "end", "end_place",
    "unseen", "unseen_meaning", "unseen_name", "unseen_called", "unseen_aim", "unseen_sure", "arrived",
)  # fmt: skip
"""What the listwise layer sums, with one weight each. Those from `unseen` on are 0 for tools that were called in
training. `unseen_sure` is the network's surest logarithm; `arrived` is 1 for tools that came after training."""
AT = {name: place for place, name in enumerate(PARTS)}


class PastCalls(NamedTuple):
    """The calls of the latest past episodes, each tool as the number of its class."""

    classes: NDArray[np.signedinteger[Any]]
    """(episodes, longest), -1 where an episode has ended."""
    lengths: NDArray[np.int32]
    ended: NDArray[np.bool_]


class Network(NamedTuple):
    """The weights of several hidden layers side by side; `out` takes their mean."""

    query: Floats
    """(dimension of vector and words, hidden)."""
    history: Floats
    """(rows, hidden); see `history_rows`."""
    bias: Floats
    unasked: Floats
    out: Floats
    """(hidden, classes and END)."""
    out_bias: Floats


class Model(Struct, frozen=True):
    """Everything that training writes."""

    tools: tuple[ToolId, ...]
    """The tool of each class."""
    idle: tuple[ToolId, ...]
    """Tools that existed in training and were never called."""
    network: Network
    lsa: Lsa
    """Turns words into their part of the network's input."""
    dimension: int
    """Of a task's vectors by all encoders together; 0 without encoders."""
    next_text: NextText
    lens: Floats
    """(dimension of vector and words, fewer): past tasks are compared in the directions in which they differ."""
    tasks: Floats
    """(episodes, fewer): the past tasks; zeros where no words were known."""
    calls: PastCalls
    asked: tuple[float, ...]
    """The weights of the listwise layer, by `PARTS`, where the task is known."""
    unasked: tuple[float, ...]
    """The same where the task is not known."""
    scales: tuple[float, float] = (8.0, 8.0)
    """The factors of vector and words before the network."""

    def dumps(self) -> bytes:
        """Encode the model; half precision changes no ranking and halves the size."""
        header = {
            "tools": self.tools, "idle": self.idle, "vocabulary": self.lsa.vocabulary, "scales": self.scales,
            "dimension": self.dimension,
            "asked": dict(zip(PARTS, self.asked, strict=True)), "unasked": dict(zip(PARTS, self.unasked, strict=True)),
        }  # fmt: skip
        network = self.network._replace(history=_halve(self.network.history))
        arrays: dict[str, NDArray[Any]] = {f"network_{name}": part for name, part in network._asdict().items()}
        arrays |= {f"calls_{name}": part for name, part in self.calls._asdict().items()}
        arrays |= {"projection": self.lsa.projection.astype(np.float16), "tasks": self.tasks.astype(np.float16)}
        arrays["lens"] = self.lens.astype(np.float16)
        arrays |= {f"aim_{name}": part.astype(np.float16) for name, part in self.next_text._asdict().items()}
        return pack(METHOD, VERSION, header, arrays)


def read_model(model: bytes) -> Model:
    """Decode a model and check that its parts fit together. Raises `ModelError`.

    The large parts that only a new task or a newly called tool reads stay in half precision, which takes half the
    memory: a product turns them into floats.
    """
    header, arrays = unpack(model, METHOD, VERSION)
    try:
        network = Network(*(arrays[f"network_{name}"] for name in Network._fields))
        read = Model(
            tools=tuple(map(ToolId, header["tools"])),
            idle=tuple(map(ToolId, header["idle"])),
            network=network._replace(history=_halve(network.history)),
            lsa=Lsa(header["vocabulary"], _halve(arrays["projection"])),
            dimension=int(header["dimension"]),
            next_text=NextText(*(_halve(arrays[f"aim_{name}"]) for name in NextText._fields)),
            lens=arrays["lens"].astype(np.float32),
            tasks=_halve(arrays["tasks"]),
            calls=PastCalls(*(arrays[f"calls_{name}"] for name in PastCalls._fields)),
            asked=tuple(float(header["asked"][name]) for name in PARTS),
            unasked=tuple(float(header["unasked"][name]) for name in PARTS),
            scales=(float(header["scales"][0]), float(header["scales"][1])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{METHOD}: a part is missing or of another kind ({error!r})") from error
    _check(read)
    # The smallest type that holds every class and two more.
    classes = read.calls.classes.astype(np.min_scalar_type(-len(read.tools) - 2))
    return replace(read, calls=read.calls._replace(classes=classes))


def _halve(part: NDArray[Any]) -> NDArray[Any]:
    return part.astype(np.float16, copy=False)


def _check(model: Model) -> None:
    """Check that the parts fit together. Raises `ModelError`."""
    classes, network, aim = len(model.tools), model.network, model.next_text
    hidden, episodes, fewer = len(network.bias), len(model.calls.classes), model.tasks.shape[1]
    width = model.dimension + model.lsa.dimension
    for name, part, shape in (
        ("query", network.query, (width, hidden)),
        ("history", network.history, (rows_of(classes), hidden)),
        ("bias", network.bias, (hidden,)),
        ("unasked", network.unasked, (hidden,)),
        ("out", network.out, (hidden, classes + 1)),
        ("out_bias", network.out_bias, (classes + 1,)),
        ("aim task", aim.task, (model.dimension, aim.dimension)),
        ("aim calls", aim.calls, (2 * aim.dimension + TEXT_PLACES, aim.dimension)),
        ("lens", model.lens, (width, fewer)),
        ("tasks", model.tasks, (episodes, fewer)),
    ):
        if part.shape != shape:
            raise ModelError(
                f"{METHOD}: {name} has the shape {part.shape}, expected {shape} with {classes} tools and {episodes}"
                " lists of calls"
            )
    if (highest := model.calls.classes.max(initial=-1)) >= classes:
        raise ModelError(f"{METHOD}: the lists of calls name class {highest}, expected {classes} at most")


def rows_of(classes: int) -> int:
    """Return how many rows the weights of the history have, for so many classes."""
    return (1 + LAST) * classes + LAST + PLACES


def history_rows(history: Sequence[int], classes: int) -> list[int]:
    """Return the rows of weights that are added up for a history: one for each call, one for each of the last three
    calls or its absence, and one for the number of calls."""
    rows = [call for call in history[-MOST_HISTORY:] if call != UNKNOWN]
    for back in range(LAST):
        missing = (1 + LAST) * classes + back
        known = len(history) > back and history[-1 - back] != UNKNOWN
        rows.append((1 + back) * classes + history[-1 - back] if known else missing)
    rows.append((1 + LAST) * classes + LAST + min(len(history), PLACES - 1))
    return rows
