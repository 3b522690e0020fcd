"""TGR as published: the discriminator that draws the graph, and the convolution of tools' vectors over it.

Section 3.1: a three-class classifier over pairs of documents (the second needs the first, no dependency, the reverse),
first trained on balanced classes (eq. 1, cross-entropy), then on the imbalanced ones of practice with the loss averaged
within each class (eq. 2). The paper fine-tunes BERT-base on 276,000 pairs that a large model wrote. Here the classes
and both losses are the paper's; the classifier is a low-rank bilinear form over a frozen encoder's vectors beside a few
signs read from names and parameters, tied so that swapping two tools swaps the classes; the pairs are made from
schemas, where one tool's result has a field that another takes. Such pairs teach next to nothing about other servers
(docs/benchmarks.md), so the product draws its graph from schemas and flows alone.

Section 3.2, eq. 3 (after Kipf and Welling, without trainable parameters): with A~ = A + I and D~ its degrees,
X' = D~^-1/2 A~ D~^-1/2 X, and the score of a query is its cosine to X' (section 3.3). The paper's text draws an edge
from the dependant to its prerequisite, but its case study needs the flow the other way. So the direction is a choice,
and by default a prerequisite takes in its dependants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.learning.training.optimizers import Adam
from foretool.retrieval.document import GIVING, Fields, identifies
from foretool.retrieval.graph import Edge, Graph, schema_edges
from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import softmax
from foretool.storage.records import ToolId

RANK: Final = 16
STEPS: Final = (150, 150)
"""Steps of the two stages."""
RATE: Final = 0.02
DECAY: Final = 1e-3
NEGATIVES: Final = 10
"""Pairs without a dependency for each with one, in the second stage."""
HELD_OUT: Final = 0.2
SURE: Final = 0.9
"""The probability from which a pair becomes an edge."""
MOST_PAIRS: Final = 200_000

BEFORE, NONE, AFTER = 0, 1, 2
"""The classes: the first tool is the prerequisite of the second, neither, the second of the first."""

Direction = Literal["prerequisite", "dependant", "symmetric"]
"""Whose vector takes in the other's."""


def adjacency(graph: Graph, tools: Sequence[ToolId | None]) -> Floats:
    """Return (slots, slots): 1 where the tool of the row is a prerequisite of the column's."""
    slot_of = {tool: slot for slot, tool in enumerate(tools) if tool is not None}
    matrix = np.zeros((len(tools), len(tools)), np.float32)
    for edge in graph:
        if edge.before in slot_of and edge.after in slot_of:
            matrix[slot_of[edge.before], slot_of[edge.after]] = 1.0
    return matrix


def convolve(
    vectors: Floats, prerequisites: Floats, direction: Direction = "prerequisite", *, scaled: bool = True
) -> Floats:
    """Apply eq. 3, and scale each row to length 1 unless `scaled` is false; `vectors` (slots, dimension),
    `prerequisites` as of `adjacency`."""
    taken = {
        "prerequisite": prerequisites,
        "dependant": prerequisites.T,
        "symmetric": np.maximum(prerequisites, prerequisites.T),
    }[direction]
    with_self = taken + np.eye(len(taken), dtype=np.float32)
    scale = 1.0 / np.sqrt(with_self.sum(axis=1))
    mixed: Floats = ((scale[:, None] * with_self * scale[None, :]) @ vectors).astype(np.float32)
    if not scaled:
        return mixed
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    unit: Floats = mixed / np.maximum(lengths, np.float32(1e-12))
    return unit


class Pair(Struct, frozen=True):
    """Two tools by their place, and the class of their dependency."""

    first: int
    second: int
    label: int


class Quality(Struct, frozen=True):
    """Precision, recall and F1 of the two dependent classes together, as in the paper's Table 3."""

    precision: float
    recall: float
    f1: float


class Discriminator:
    """Classifies pairs by the logits (s(a, b), c, s(b, a)), where s(a, b) = signs(a, b) . w + (a P) . (b Q)."""

    def __init__(self, dimension: int, signs: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.left: Floats = draw.normal(0.0, 0.1, (dimension, RANK)).astype(np.float32)
        self.right: Floats = draw.normal(0.0, 0.1, (dimension, RANK)).astype(np.float32)
        self.weights: Floats = np.zeros(signs, np.float32)
        self.none: Floats = np.zeros(1, np.float32)

    @property
    def parameters(self) -> list[Floats]:
        return [self.left, self.right, self.weights, self.none]

    def probabilities(self, a: Floats, b: Floats, ab: Floats, ba: Floats) -> Floats:
        """Return the probability of each class, (pairs, 3); `a`, `b` (pairs, dimension), `ab`, `ba` (pairs, signs)."""
        forth = (a @ self.left * (b @ self.right)).sum(1) + ab @ self.weights
        back = (b @ self.left * (a @ self.right)).sum(1) + ba @ self.weights
        logits = np.stack([forth, np.broadcast_to(self.none, forth.shape), back], axis=1)
        return softmax(logits)

    def gradients(self, a: Floats, b: Floats, ab: Floats, ba: Floats, slope: Floats) -> list[Floats]:
        """Return the gradient of each of `parameters`; `slope` (pairs, 3) is the derivative of the loss by the
        logits."""
        forth, none, back = slope[:, :1], slope[:, 1], slope[:, 2:]
        left = a.T @ (forth * (b @ self.right)) + b.T @ (back * (a @ self.right))
        right = b.T @ (forth * (a @ self.left)) + a.T @ (back * (b @ self.left))
        weights = (ab * forth).sum(0) + (ba * back).sum(0)
        return [left, right, weights, np.asarray([none.sum()], np.float32)]


def signs(a: Fields, b: Fields) -> list[float]:
    """Return what names and parameters say about "b needs a"; results are left out, since the labels are made from
    them."""
    wanted = {noun for field in b.takes if (noun := identifies(field))}
    named = any(noun.split()[-1] in a.nouns for noun in wanted)
    shared = len(a.nouns & b.nouns) / max(len(a.nouns | b.nouns), 1)
    return [
        1.0,
        float(named),
        shared,
        float(a.verb in GIVING),
        float(b.verb in GIVING),
        float(named and a.verb in GIVING),
        len(a.takes.keys() & b.takes.keys()) / max(len(a.takes.keys() | b.takes.keys()), 1),
        float(any(identifies(field) is not None for field in a.takes)),
        float(any(identifies(field) is not None for field in b.takes)),
    ]


def train_discriminator(
    read: Sequence[Fields], vectors: Floats, balanced: Sequence[Pair], imbalanced: Sequence[Pair], seed: int
) -> Discriminator:
    """Train both stages by Adam over all pairs at once."""
    model = Discriminator(vectors.shape[1], len(signs(read[0], read[0])), seed)
    for steps, pairs, by_class in ((STEPS[0], balanced, False), (STEPS[1], imbalanced, True)):
        given = inputs(read, vectors, pairs)
        labels = np.asarray([pair.label for pair in pairs])
        _descend(
            model,
            given,
            labels,
            class_weights(labels) if by_class else np.full(len(labels), 1.0 / len(labels), np.float32),
            steps,
        )
    return model


def class_weights(labels: NDArray[np.int64]) -> Floats:
    """Return the weights of eq. 2, the mean within each class and the sum over the classes; (pairs,)."""
    counts = np.bincount(labels, minlength=3)
    return (1.0 / np.maximum(counts, 1)[labels]).astype(np.float32)


def inputs(read: Sequence[Fields], vectors: Floats, pairs: Sequence[Pair]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the vectors of both tools, and the signs in both orders."""
    first = [pair.first for pair in pairs]
    second = [pair.second for pair in pairs]
    ab = np.asarray([signs(read[one], read[two]) for one, two in zip(first, second, strict=True)], np.float32)
    ba = np.asarray([signs(read[two], read[one]) for one, two in zip(first, second, strict=True)], np.float32)
    return vectors[first], vectors[second], ab, ba


def _descend(
    model: Discriminator,
    given: tuple[Floats, Floats, Floats, Floats],
    labels: NDArray[np.int64],
    weights: Floats,
    steps: int,
) -> None:
    """Minimise the loss, with `DECAY` as a part of it."""
    adams = [Adam(each) for each in model.parameters]
    wanted = np.eye(3, dtype=np.float32)[labels]
    for _ in range(steps):
        slope = (model.probabilities(*given) - wanted) * weights[:, None]
        for adam, gradient in zip(adams, model.gradients(*given, slope), strict=True):
            adam.step(gradient + DECAY * adam.values, RATE)


def pairs_of(read: Sequence[Fields], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return pairs of tools of one upstream, labelled by the fields of their results: balanced and imbalanced."""
    place = {each.id: at for at, each in enumerate(read)}
    drawn = [edge for edge in schema_edges(read) if edge.evidence[0].startswith("schema")]
    dependent = sorted({(place[edge.before], place[edge.after]) for edge in drawn})
    known = {*dependent, *((after, before) for before, after in dependent)}
    giving = {at for at, each in enumerate(read) if each.gives}
    free = [
        pair for pairs in _pairs_by_upstream(read) for pair in pairs if giving.issuperset(pair) and pair not in known
    ]
    draw = np.random.default_rng(seed)
    draw.shuffle(free)
    forth = [Pair(before, after, BEFORE) for before, after in dependent]
    back = [Pair(after, before, AFTER) for before, after in dependent]
    none = [Pair(one, two, NONE) for one, two in free]
    return [*forth, *back, *none[: len(forth)]], [*forth, *back, *none[: NEGATIVES * len(forth)]]


def _pairs_by_upstream(read: Sequence[Fields]) -> list[list[tuple[int, int]]]:
    """Return the pairs of places of each upstream's tools, the smaller place first."""
    peers: dict[str, list[int]] = {}
    for at, each in enumerate(read):
        peers.setdefault(each.upstream, []).append(at)
    return [list(combinations(group, 2)) for group in peers.values()]


def quality(model: Discriminator, read: Sequence[Fields], vectors: Floats, pairs: Sequence[Pair]) -> Quality:
    """Return how good the dependencies are that the discriminator finds, direction included."""
    found = model.probabilities(*inputs(read, vectors, pairs)).argmax(axis=1)
    labels = np.asarray([pair.label for pair in pairs])
    right = int(((found == labels) & (labels != NONE)).sum())
    precision = right / max(int((found != NONE).sum()), 1)
    recall = right / max(int((labels != NONE).sum()), 1)
    return Quality(precision, recall, 2 * precision * recall / max(precision + recall, 1e-9))


def split(pairs: Sequence[Pair], read: Sequence[Fields], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those to train on and those to check with, by upstream, or by tool if there is one upstream."""
    upstreams = sorted({each.upstream for each in read})
    draw = np.random.default_rng(seed)
    if len(upstreams) > 1:
        kept = {upstreams[at] for at in draw.permutation(len(upstreams))[: max(round(HELD_OUT * len(upstreams)), 1)]}
        return (
            [pair for pair in pairs if read[pair.first].upstream not in kept],
            [pair for pair in pairs if read[pair.first].upstream in kept],
        )
    held = set(draw.permutation(len(read))[: round(HELD_OUT * len(read))].tolist())
    return (
        [pair for pair in pairs if not {pair.first, pair.second} & held],
        [pair for pair in pairs if {pair.first, pair.second} <= held],
    )


def edges_of(model: Discriminator, read: Sequence[Fields], vectors: Floats) -> Iterator[Edge]:
    """Yield an edge for each pair of one upstream that the discriminator is sure of."""
    left = MOST_PAIRS
    for group in _pairs_by_upstream(read):
        pairs = [Pair(one, two, NONE) for one, two in group[:left]]
        left -= len(pairs)
        if not pairs:
            continue
        for pair, chances in zip(pairs, model.probabilities(*inputs(read, vectors, pairs)), strict=True):
            ends = (pair.first, pair.second) if chances[BEFORE] > chances[AFTER] else (pair.second, pair.first)
            sure = float(max(chances[BEFORE], chances[AFTER]))
            if sure >= SURE:
                yield Edge(read[ends[0]].id, read[ends[1]].id, sure / 2, (f"discriminator: {sure:.2f}",))
