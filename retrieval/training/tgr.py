"""TGR: the discriminator that tells which of two tools depends on the other, and the graph drawn with it.

Published (section 3.1): a three-class classifier over pairs of documents (the second needs the first, no dependency,
the reverse), first trained on balanced classes (eq. 1, cross-entropy), then on the imbalanced ones of practice with the
loss averaged within each class (eq. 2). The paper fine-tunes BERT-base on 276,000 pairs that a large model wrote. Here
the classes and both losses are the paper's; the classifier is a low-rank bilinear form over a frozen encoder's vectors
beside a few signs read from names and parameters, tied so that swapping two tools swaps the classes; the pairs are made
from schemas, where one tool's result has a field that another takes. Such pairs teach little that carries over to other
servers (`docs/learning.md`), so what it says becomes an edge only where it proved right on held-out servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.fields import GIVING, Fields, fields, identifies
from foretool.retrieval.graph import Edge, Graph, flow_edges, merged, schema_edges
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.tgr import dumps
from foretool.retrieval.training import Material, Progress, TooLittle
from foretool.retrieval.training.adam import Adam

RANK: Final = 16
STEPS: Final = (150, 150)
"""Of the two stages."""
RATE: Final = 0.02
DECAY: Final = 1e-3
FEWEST_PAIRS: Final = 40
"""Dependent pairs worth training a discriminator on."""
NEGATIVES: Final = 10
"""Pairs without a dependency for each with one, in the second stage."""
HELD_OUT: Final = 0.2
SURE: Final = 0.9
"""The probability from which a pair becomes an edge, and only where it was right often enough on held-out pairs."""
PRECISION: Final = 0.8
MOST_PAIRS: Final = 200_000

BEFORE, NONE, AFTER = 0, 1, 2
"""The classes: the first tool is the prerequisite of the second, neither, the second of the first."""


class Pair(Struct, frozen=True):
    """Two tools by their place, and how they stand to each other."""

    first: int
    second: int
    label: int


class Quality(Struct, frozen=True):
    """Of the two dependent classes together, as the paper's Table 3."""

    precision: float
    recall: float
    f1: float


class Discriminator:
    """logits (after needs before, none, reverse) = (s(a, b), c, s(b, a)), s(a, b) = signs(a, b) . w + (a P) . (b Q)."""

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
        """(pairs, 3); `a`, `b` (pairs, dimension), `ab`, `ba` (pairs, signs)."""
        forth = (a @ self.left * (b @ self.right)).sum(1) + ab @ self.weights
        back = (b @ self.left * (a @ self.right)).sum(1) + ba @ self.weights
        logits = np.stack([forth, np.broadcast_to(self.none, forth.shape), back], axis=1)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances: Floats = odds / odds.sum(axis=1, keepdims=True)
        return chances

    def gradients(self, a: Floats, b: Floats, ab: Floats, ba: Floats, slope: Floats) -> list[Floats]:
        """Of each of `parameters`; `slope` (pairs, 3) is the loss' derivative by the logits."""
        forth, none, back = slope[:, :1], slope[:, 1], slope[:, 2:]
        left = a.T @ (forth * (b @ self.right)) + b.T @ (back * (a @ self.right))
        right = b.T @ (forth * (a @ self.left)) + a.T @ (back * (b @ self.left))
        weights = (ab * forth).sum(0) + (ba * back).sum(0)
        return [left, right, weights, np.asarray([none.sum()], np.float32)]


def signs(a: Fields, b: Fields) -> list[float]:
    """What names and parameters tell of "b needs a", results left out: they are what the labels are made from."""
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
    """Both stages; Adam over all pairs at once."""
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
    """Eq. 2: within each class the mean, over the classes the sum; (pairs,)."""
    counts = np.bincount(labels, minlength=3)
    return (1.0 / np.maximum(counts, 1)[labels]).astype(np.float32)


def inputs(read: Sequence[Fields], vectors: Floats, pairs: Sequence[Pair]) -> tuple[Floats, Floats, Floats, Floats]:
    """Both vectors and the signs in both orders."""
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
    """Adam, `DECAY` as a part of the loss."""
    adams = [Adam(each) for each in model.parameters]
    wanted = np.eye(3, dtype=np.float32)[labels]
    for _ in range(steps):
        slope = (model.probabilities(*given) - wanted) * weights[:, None]
        for adam, gradient in zip(adams, model.gradients(*given, slope), strict=True):
            adam.step(gradient + DECAY * adam.values, RATE)


def pairs_of(read: Sequence[Fields], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs of tools of one upstream, from the fields of their results: as many of each class, and as many as there
    are in practice."""
    place = {each.id: at for at, each in enumerate(read)}
    told = [edge for edge in schema_edges(read) if edge.evidence[0].startswith("schema")]
    dependent = sorted({(place[edge.before], place[edge.after]) for edge in told})
    known = {*dependent, *((after, before) for before, after in dependent)}
    peers: dict[str, list[int]] = {}
    for at, each in enumerate(read):
        if each.gives:
            peers.setdefault(each.upstream, []).append(at)
    free = [
        (one, two)
        for group in peers.values()
        for one in group
        for two in group
        if one < two and (one, two) not in known
    ]
    draw = np.random.default_rng(seed)
    draw.shuffle(free)
    forth = [Pair(before, after, BEFORE) for before, after in dependent]
    back = [Pair(after, before, AFTER) for before, after in dependent]
    none = [Pair(one, two, NONE) for one, two in free]
    return [*forth, *back, *none[: len(forth)]], [*forth, *back, *none[: NEGATIVES * len(forth)]]


def quality(model: Discriminator, read: Sequence[Fields], vectors: Floats, pairs: Sequence[Pair]) -> Quality:
    """How many of the dependencies it tells are ones, and how many it finds, direction included."""
    told = model.probabilities(*inputs(read, vectors, pairs)).argmax(axis=1)
    labels = np.asarray([pair.label for pair in pairs])
    right = int(((told == labels) & (labels != NONE)).sum())
    precision = right / max(int((told != NONE).sum()), 1)
    recall = right / max(int((labels != NONE).sum()), 1)
    return Quality(precision, recall, 2 * precision * recall / max(precision + recall, 1e-9))


def split(pairs: Sequence[Pair], read: Sequence[Fields], seed: int) -> tuple[list[Pair], list[Pair]]:
    """To train on and to check with; by upstream, so that no tool is on both sides, by tool where there is but one."""
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


def discriminated(model: Discriminator, read: Sequence[Fields], vectors: Floats) -> Iterator[Edge]:
    """An edge for each pair of one upstream that the discriminator is sure of."""
    peers: dict[str, list[int]] = {}
    for at, each in enumerate(read):
        peers.setdefault(each.upstream, []).append(at)
    left = MOST_PAIRS
    for group in peers.values():
        pairs = [Pair(one, two, NONE) for one in group for two in group if one < two][:left]
        left -= len(pairs)
        if not pairs:
            continue
        for pair, chances in zip(pairs, model.probabilities(*inputs(read, vectors, pairs)), strict=True):
            ends = (pair.first, pair.second) if chances[BEFORE] > chances[AFTER] else (pair.second, pair.first)
            sure = float(max(chances[BEFORE], chances[AFTER]))
            if sure >= SURE:
                yield Edge(read[ends[0]].id, read[ends[1]].id, sure / 2, (f"discriminator: {sure:.2f}",))


class Tgr:
    """`foretool learn`'s way to a graph."""

    name = "tgr"
    minimum = 0
    """It learns from schemas; episodes only add to it."""

    def train(self, material: Material, progress: Progress) -> bytes:
        """Edges from schemas, and those of a discriminator trained on them where it proved right on held-out pairs."""
        progress("reading schemas", 0.0)
        read = [fields(tool) for tool in material.tools]
        edges = [*schema_edges(read), *flow_edges(material.flows, {each.id for each in read})]
        if material.documents is not None:
            progress("training the discriminator", 0.3)
            edges += self._discriminated(material, read)
        if not edges:
            raise TooLittle(f"tgr: no dependency among {len(read)} tools: none gives a field that another takes")
        progress("done", 1.0)
        return dumps(merged(edges))

    def _discriminated(self, material: Material, read: Sequence[Fields]) -> list[Edge]:
        balanced, imbalanced = pairs_of(read, material.seed)
        if len(balanced) < 2 * FEWEST_PAIRS or material.documents is None:
            return []
        texts = material.server_texts
        vectors = material.documents(
            [embedded_text(document(tool, texts.get(tool.upstream, ""))) for tool in material.tools]
        )
        taught, checked = split(imbalanced, read, material.seed)
        whole, _ = split(balanced, read, material.seed)
        model = train_discriminator(read, vectors, whole, taught, material.seed)
        if not checked or quality(model, read, vectors, checked).precision < PRECISION:
            return []
        return list(discriminated(model, read, vectors))


METHOD = Tgr()

__all__ = ("METHOD", "Discriminator", "Graph", "Pair", "Quality", "Tgr", "pairs_of", "quality", "train_discriminator")
