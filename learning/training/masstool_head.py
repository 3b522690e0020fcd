"""The tasks that MassTool is trained on, the classes of their golden sets, and the heads that tell these classes.

A head is a softmax over the classes, from the words and the vector of a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.learning.rankers.masstool import Ints, Sparse, share_rows
from foretool.learning.training.optimizers import Adam, RowAdam
from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import softmax

_VOCABULARY: Final = 40_000
"""Grams at most; those in the most tasks stay."""
_LEAST_TASKS: Final = 2
"""A gram in fewer tasks says nothing."""
_CLASSES: Final = 2_000
"""Golden sets at most that are classes of their own; the tools of rarer sets are learned one by one."""
BANK: Final = 4_096
"""Tasks kept for the search."""
EVEN: Final = 0.7
"""A golden set of n tools counts for each of them 1 / n to this power, near what it adds to nDCG; with 1, what it adds
to recall, both measures are a little lower."""

SIZE: Final = 128
"""Numbers that the words of a task are reduced to."""
_EPOCHS, _EPOCHS_OF_WORDS = 4, 10
"""With sentence vectors, and by words alone."""
_BATCH, _RATE = 128, 1e-2
_STEPS: Final = 200
"""Fewest steps."""
_FORGOTTEN: Final = 0.3
"""Share of a task's grams that a step leaves out."""
LOUD: Final = 3.0
"""Factor of the sentence vectors during training, so that they learn as fast as the words."""


class TrainingTasks(Struct, frozen=True):
    """The tasks that are learned from, each with its grams, its vector and its golden tools."""

    words: Sparse
    vectors: Floats
    """(tasks, dimension); dimension 0 without an encoder."""
    golds: tuple[tuple[int, ...], ...]
    """Sorted numbers of tools."""
    tools: int

    def __len__(self) -> int:
        return len(self.golds)

    def without_vectors(self) -> TrainingTasks:
        return TrainingTasks(self.words, self.vectors[:, :0], self.golds, self.tools)

    def golden(self, rows: Ints) -> Floats:
        """Return which tools each of these tasks really called (its golden tools); (rows, tools), 1 or 0."""
        found = np.zeros((len(rows), self.tools), np.float32)
        for place, row in enumerate(rows.tolist()):
            found[place, list(self.golds[row])] = 1.0
        return found


class Classes(Struct, frozen=True):
    """The golden sets that a head tells apart, and which of them each task belongs to."""

    sets: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    """By task: the class of its set, or of each of its tools if the set is rare; they share the probability evenly."""

    def of(self, rows: Ints) -> Floats:
        """Return how each task's class is spread over the golden sets; (rows, sets), each row adding up to 1."""
        found = np.zeros((len(rows), len(self.sets)), np.float32)
        for place, row in enumerate(rows.tolist()):
            found[place, list(self.targets[row])] = 1.0 / len(self.targets[row])
        return found


def find_classes(golds: Sequence[tuple[int, ...]]) -> Classes:
    """Make classes of at most `_CLASSES` sets that occur at least twice, and of each tool of the other sets."""
    counts = Counter(golds)
    often = {each for each, count in counts.most_common(_CLASSES) if count > 1}
    single = {(tool,) for each in counts.keys() - often for tool in each}
    sets = tuple(sorted(often | single))
    number = {each: at for at, each in enumerate(sets)}
    targets = (((number[each],) if each in often else tuple(number[(tool,)] for tool in each)) for each in golds)
    return Classes(sets, tuple(targets))


def familiar_share(golds: Sequence[tuple[int, ...]], episode_of: Sequence[int]) -> float:
    """Return the share of the tasks all of whose tools another episode took too.

    `episode_of`: the episode of each task. Several texts of one episode are one task here: they have the same tools, so
    with them every tool would seem familiar.
    """
    taken = {(tool, episode) for each, episode in zip(golds, episode_of, strict=True) for tool in each}
    episodes = Counter(tool for tool, _ in taken)
    return sum(all(episodes[tool] > 1 for tool in each) for each in golds) / max(len(golds), 1)


def build_vocabulary(counts: Sequence[Counter[int]]) -> tuple[NDArray[np.uint32], Floats]:
    """Return the sorted hashes of the grams in at least `_LEAST_TASKS` tasks, and their idf."""
    seen = Counter(gram for each in counts for gram in each)
    often = sorted(
        (gram for gram, tasks in seen.items() if tasks >= _LEAST_TASKS), key=lambda gram: (-seen[gram], gram)
    )
    kept = sorted(often[:_VOCABULARY])
    idf = np.asarray([np.log((1 + len(counts)) / (1 + seen[gram])) + 1.0 for gram in kept], np.float32)
    return np.asarray(kept, np.uint32), idf


def stack_rows(rows: Sequence[tuple[Ints, Floats]]) -> Sparse:
    """Stack rows, each as `weighted` returns it, into one matrix."""
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows], dtype=np.int64)])
    empty = (np.empty(0, np.int64), np.empty(0, np.float32))
    return Sparse(
        starts.astype(np.int64),
        np.concatenate([places for places, _ in (*rows, empty)]),
        np.concatenate([values for _, values in (*rows, empty)]),
    )


def take_rows(words: Sparse, rows: Ints, kept: Callable[[int], Floats] | None = None) -> tuple[Ints, Floats]:
    """Return the columns that occur in these rows, and the rows without all other columns; (rows, columns). `kept`:
    factors of the values."""
    sizes = words.starts[rows + 1] - words.starts[rows]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1]) + np.repeat(words.starts[rows] - ends + sizes, sizes)
    used, number = np.unique(words.columns[places], return_inverse=True)
    values = words.values[places]
    found = np.zeros((len(rows), len(used)), np.float32)
    found[np.repeat(np.arange(len(rows)), sizes), number] = values if kept is None else values * kept(len(values))
    return used, found


def choose_bank(golds: Sequence[tuple[int, ...]], rows: Ints) -> Ints:
    """Choose at most `BANK` of these rows for the search: the newest of every golden set, as many of each as there is
    room for."""
    if len(rows) <= BANK:
        return rows
    by_set: dict[tuple[int, ...], list[int]] = {}
    for row in rows[::-1].tolist():
        by_set.setdefault(golds[row], []).append(row)
    kept: list[int] = []
    depth = 0
    while len(kept) < BANK:
        kept += [each[depth] for each in by_set.values() if len(each) > depth]
        depth += 1
    return np.sort(np.asarray(kept[:BANK], np.int64))


def lists_of(rows: Sequence[Sequence[int]]) -> Sparse:
    """Return the golden tools of each row as a sparse matrix, with which shares of rows become scores of tools."""
    return share_rows(*flatten(rows), EVEN)


def flatten(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return where each row starts in the second array, with one more for the end; and all rows one after the other."""
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return starts.astype(np.int32), np.asarray([each for row in rows for each in row], np.int32)


class Head(Struct, frozen=True):
    """A head, as `rankers.masstool.Net` before its rows are rounded."""

    rows: Floats
    out: Floats
    bias: Floats


def fit_head(tasks: TrainingTasks, known: Classes, rows: Ints, seed: int, progress: Callable[[float], None]) -> Head:
    """Fit a head for these rows of the tasks by cross-entropy and Adam with a falling rate.

    A seed gives the same head on the same machine. The inputs are (batch, SIZE + dimension), the words' numbers first.
    """
    draw = np.random.default_rng(seed)
    size = tasks.vectors.shape[1]
    head = Head(
        rows=draw.normal(0.0, SIZE**-0.5, (int(tasks.words.columns.max(initial=0)) + 1, SIZE)).astype(np.float32),
        out=np.zeros((SIZE + size, len(known.sets)), np.float32),
        bias=np.zeros(len(known.sets), np.float32),
    )
    head.out[:SIZE] = draw.uniform(-1.0, 1.0, (SIZE, len(known.sets))) * SIZE**-0.5
    of_rows, of_out, of_bias = RowAdam(head.rows), Adam(head.out), Adam(head.bias)
    batch = min(_BATCH, len(rows))
    each_epoch = len(rows) // batch
    epochs = max(_EPOCHS if size else _EPOCHS_OF_WORDS, -(-_STEPS // each_epoch))

    def kept(count: int) -> Floats:
        return (draw.random(count) >= _FORGOTTEN).astype(np.float32) / np.float32(1.0 - _FORGOTTEN)

    for epoch in range(epochs):
        order = rows[draw.permutation(len(rows))]
        for place in range(each_epoch):
            chosen = order[place * batch : (place + 1) * batch]
            rate = _RATE * max(0.02, 1.0 - (epoch * each_epoch + place) / (epochs * each_epoch))
            used, words = take_rows(tasks.words, chosen, kept)
            inputs = np.concatenate([words @ head.rows[used], np.float32(LOUD) * tasks.vectors[chosen]], axis=1)
            gradient: Floats = softmax(inputs @ head.out + head.bias) - known.of(chosen)
            gradient /= np.float32(batch)
            back: Floats = words.T @ (gradient @ head.out[:SIZE].T)
            of_rows.step(used, back, rate)
            of_out.step(inputs.T @ gradient, rate)
            of_bias.step(gradient.sum(0, dtype=np.float32), rate)
        progress((epoch + 1) / epochs)
    return head


def class_shares(heads: Sequence[Head], tasks: TrainingTasks, rows: Ints) -> Floats:
    """Return the predicted share of each class, from the mean of the heads' logits; (rows, classes)."""
    found = []
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        used, words = take_rows(tasks.words, part)
        vectors = np.float32(LOUD) * tasks.vectors[part]
        said = []
        for head in heads:
            inputs = np.concatenate([words @ head.rows[used], vectors[:, : len(head.out) - SIZE]], axis=1)
            said.append(inputs @ head.out + head.bias)
        found.append(softmax(np.mean(said, axis=0, dtype=np.float32)))
    return np.concatenate(found)
