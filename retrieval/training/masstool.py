"""Trains what `rankers.masstool` serves, from the tasks on record: numpy alone, a minute or two for 17,000 tasks.

Part of the tasks is kept back at first: how right head and vote are there says how they are mixed and how much they
are to be believed (`Trust`). Then all of them are learnt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.blend import softmax
from foretool.retrieval.encoders.opening import unit
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.masstool import (
    NAME,
    Header,
    Ints,
    Lists,
    Sparse,
    Trust,
    dumps,
    grams,
    votes,
    weighted,
)
from foretool.retrieval.training import Material, Progress, TooLittle
from foretool.retrieval.training.adam import Adam, RowAdam

MINIMUM: Final = 20
"""Tasks."""
VOCABULARY: Final = 40_000
"""Grams at most; those in the most tasks stay."""
LEAST_TASKS: Final = 2
"""A gram in fewer says nothing."""
CLASSES: Final = 2_000
"""Golden sets at most that are classes of their own; the tools of rarer ones are learnt each for itself."""
BANK: Final = 4_096
"""Tasks kept for the search."""
MOST: Final = 40_000
"""Tasks learnt from, the newest."""
SIZE: Final = 128
"""Numbers that the words of a task are brought down to."""
READERS, LISTENERS = 3, 1
"""Heads of words and sentence vector, whose mean is the head, and heads of words alone, for where there is none. The
mean is that of logits: of probabilities, or with the heads of words alone in it, it finds less."""
EPOCHS, EPOCHS_OF_WORDS = 4, 10
"""With sentence vectors, and by words alone."""
BATCH, RATE = 128, 1e-2
STEPS: Final = 200
"""At least."""
FORGOTTEN: Final = 0.3
"""Share of a task's grams that a step does not see."""
LOUD: Final = 3.0
"""What sentence vectors are multiplied by while learning, so that they learn as fast as the words."""
KEPT_BACK: Final = 0.15
MOST_KEPT_BACK: Final = 2_000
STRANGE: Final = 0.15
"""Share of the tasks that are kept back because of their tools."""
FEW: Final = 600
"""With fewer tasks each is kept back once, in `FOLDS` turns."""
FOLDS: Final = 4
LEAST_WITHOUT: Final = 20
"""Tasks that needed no tool, before detection is learnt."""
NEAR: Final = 0.02
"""Share of the tasks, of the kinds that are known, that distance may take something from."""
APART: Final = 0.9
"""Share of the pairs of tasks that are strangers to each other, at least."""
MIXES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
EVEN: Final = 0.7
"""A golden set of n counts for each of its tools 1 / n to this power: near what it adds to nDCG, whose best is 1, 1.63
and 2.13 for one, two and three tools. With 1, what recall adds, both are a little lower."""
RELAXED: Final = 10.0
"""Of the detection's ridge: 1 / (RELAXED x tasks)."""
DETECTION_STEPS, DETECTION_RATE = 300, 0.3


class Tasks(Struct, frozen=True):
    """What is learnt: each task with its grams, its vector, its golden tools."""

    words: Sparse
    vectors: Floats
    """(tasks, dimension); dimension 0 without an encoder."""
    golds: tuple[tuple[int, ...], ...]
    """Sorted numbers of tools."""
    tools: int

    def __len__(self) -> int:
        return len(self.golds)

    def without_vectors(self) -> Tasks:
        """The same in words alone."""
        return Tasks(self.words, self.vectors[:, :0], self.golds, self.tools)

    def golden(self, rows: Ints) -> Floats:
        """(rows, tools): 1 where golden."""
        found = np.zeros((len(rows), self.tools), np.float32)
        for place, row in enumerate(rows.tolist()):
            found[place, list(self.golds[row])] = 1.0
        return found


class Classes(Struct, frozen=True):
    """Golden sets that are told apart, and which of them each task is of."""

    sets: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    """By task: its set, or where that is rare one for each of its tools; the probability is shared evenly."""

    def of(self, rows: Ints) -> Floats:
        """(rows, sets), each row together 1."""
        found = np.zeros((len(rows), len(self.sets)), np.float32)
        for place, row in enumerate(rows.tolist()):
            found[place, list(self.targets[row])] = 1.0 / len(self.targets[row])
        return found


class Adams(NamedTuple):
    """Of the arrays of a head."""

    rows: RowAdam
    out: Adam
    bias: Adam


class Trained(Struct, frozen=True):
    """A head, as `rankers.masstool.Net` before its rows are rounded."""

    rows: Floats
    out: Floats
    bias: Floats


def classes(golds: Sequence[tuple[int, ...]]) -> Classes:
    """Sets that occur at least twice are classes, at most `CLASSES` of them; so is every tool of the other sets."""
    counts = Counter(golds)
    often = {each for each, count in counts.most_common(CLASSES) if count > 1}
    single = {(tool,) for each in counts.keys() - often for tool in each}
    sets = tuple(sorted(often | single))
    number = {each: at for at, each in enumerate(sets)}
    targets = (((number[each],) if each in often else tuple(number[(tool,)] for tool in each)) for each in golds)
    return Classes(sets, tuple(targets))


def familiar(golds: Sequence[tuple[int, ...]]) -> float:
    """The share of the tasks all of whose tools another task took, too."""
    tasks = Counter(tool for each in golds for tool in each)
    return sum(all(tasks[tool] > 1 for tool in each) for each in golds) / max(len(golds), 1)


def vocabulary(counts: Sequence[Counter[int]]) -> tuple[NDArray[np.uint32], Floats]:
    """The hashes of the grams in at least `LEAST_TASKS` tasks, sorted, and their idf."""
    seen = Counter(gram for each in counts for gram in each)
    often = sorted((gram for gram, tasks in seen.items() if tasks >= LEAST_TASKS), key=lambda gram: (-seen[gram], gram))
    kept = sorted(often[:VOCABULARY])
    idf = np.asarray([np.log((1 + len(counts)) / (1 + seen[gram])) + 1.0 for gram in kept], np.float32)
    return np.asarray(kept, np.uint32), idf


def sparse(rows: Sequence[tuple[Ints, Floats]]) -> Sparse:
    """Rows as `weighted` returns them, in one."""
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows], dtype=np.int64)])
    empty = (np.empty(0, np.int64), np.empty(0, np.float32))
    return Sparse(
        starts.astype(np.int64),
        np.concatenate([places for places, _ in (*rows, empty)]),
        np.concatenate([values for _, values in (*rows, empty)]),
    )


def taken(words: Sparse, rows: Ints, kept: Callable[[int], Floats] | None = None) -> tuple[Ints, Floats]:
    """The columns that any of these rows has, and the rows as (rows, those columns); `kept` (values,) multiplies."""
    sizes = words.starts[rows + 1] - words.starts[rows]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1]) + np.repeat(words.starts[rows] - ends + sizes, sizes)
    used, number = np.unique(words.columns[places], return_inverse=True)
    values = words.values[places]
    found = np.zeros((len(rows), len(used)), np.float32)
    found[np.repeat(np.arange(len(rows)), sizes), number] = values if kept is None else values * kept(len(values))
    return used, found


def fitted(tasks: Tasks, known: Classes, rows: Ints, seed: int, told: Callable[[float], None]) -> Trained:
    """A head for these rows of the tasks: softmax over the classes, cross-entropy, Adam with a falling rate.

    Raises nothing; a seed gives the same head on the same machine.
    """
    draw = np.random.default_rng(seed)
    size = tasks.vectors.shape[1]
    head = Trained(
        rows=draw.normal(0.0, SIZE**-0.5, (int(tasks.words.columns.max(initial=0)) + 1, SIZE)).astype(np.float32),
        out=np.zeros((SIZE + size, len(known.sets)), np.float32),
        bias=np.zeros(len(known.sets), np.float32),
    )
    head.out[:SIZE] = draw.uniform(-1.0, 1.0, (SIZE, len(known.sets))) * SIZE**-0.5
    adams = Adams(RowAdam(head.rows), Adam(head.out), Adam(head.bias))
    batch = min(BATCH, len(rows))
    each_epoch = len(rows) // batch
    epochs = max(EPOCHS if size else EPOCHS_OF_WORDS, -(-STEPS // each_epoch))
    for epoch in range(epochs):
        order = rows[draw.permutation(len(rows))]
        for place in range(each_epoch):
            done = (epoch * each_epoch + place) / (epochs * each_epoch)
            _step(tasks, known, order[place * batch : (place + 1) * batch], head, adams, max(0.02, 1.0 - done), draw)
        told((epoch + 1) / epochs)
    return head


def _step(
    tasks: Tasks,
    known: Classes,
    rows: Ints,
    head: Trained,
    adams: Adams,
    share: float,
    draw: np.random.Generator,
) -> None:
    """One batch: forward, gradient, three Adams. Inputs are (batch, SIZE + dimension), the words' numbers first."""

    def kept(count: int) -> Floats:
        return (draw.random(count) >= FORGOTTEN).astype(np.float32) / np.float32(1.0 - FORGOTTEN)

    used, words = taken(tasks.words, rows, kept)
    inputs = np.concatenate([words @ head.rows[used], np.float32(LOUD) * tasks.vectors[rows]], axis=1)
    gradient: Floats = softmax(inputs @ head.out + head.bias) - known.of(rows)
    gradient /= np.float32(len(rows))
    back: Floats = words.T @ (gradient @ head.out[:SIZE].T)
    adams.rows.step(used, back, share * RATE)
    adams.out.step(inputs.T @ gradient, share * RATE)
    adams.bias.step(gradient.sum(0, dtype=np.float32), share * RATE)


def headed(heads: Sequence[Trained], tasks: Tasks, rows: Ints) -> Floats:
    """(rows, classes): what heads say to these tasks, their logits in the mean."""
    found = []
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        used, words = taken(tasks.words, part)
        vectors = np.float32(LOUD) * tasks.vectors[part]
        said = []
        for head in heads:
            inputs = np.concatenate([words @ head.rows[used], vectors[:, : len(head.out) - SIZE]], axis=1)
            said.append(inputs @ head.out + head.bias)
        found.append(softmax(np.mean(said, axis=0, dtype=np.float32)))
    return np.concatenate(found)


# How much to believe


class Held(Struct, frozen=True):
    """Tasks that were kept back, and what the others say of them."""

    golden: Floats
    """(rows, tools)"""
    head: Floats
    """(rows, tools): shares."""
    vote: Floats
    """(rows, tools)"""
    signs: Floats
    """(rows, 4): as in `Signs`."""
    strange: NDArray[np.bool_]
    """(rows,): which took a tool that the others did not."""
    apart: tuple[float, ...]
    """The likeness of vectors and of words that nine in ten pairs of tasks without a tool in common are below."""


def bank(golds: Sequence[tuple[int, ...]], rows: Ints) -> Ints:
    """At most `BANK` of these rows: of every golden set as many as there is room for, the newest first."""
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


def likeness(tasks: Tasks, rows: Ints, others: Ints) -> tuple[Floats, Floats]:
    """Cosines (rows, others): of sentence vectors, 0 without an encoder, and of words."""
    used, words = taken(tasks.words, others)
    place = np.full(int(tasks.words.columns.max(initial=0)) + 1, -1)
    place[used] = np.arange(len(used))
    own, mine = taken(tasks.words, rows)
    shared = place[own] >= 0
    meaning: Floats = tasks.vectors[rows] @ tasks.vectors[others].T
    return meaning, mine[:, shared] @ words[:, place[own[shared]]].T


def held_back(tasks: Tasks, known: Classes, heads: Sequence[Trained], rows: Ints, others: Ints) -> Held:
    """What `heads`, and a search among `others`, say of tasks that neither has seen."""
    kept = bank(tasks.golds, others)
    golds = tasks.golden(others).any(axis=0)
    golden = tasks.golden(rows)
    own = tasks.golden(kept)
    vote, signs, pairs = [], [], []
    spread = lists_of([tasks.golds[row] for row in kept.tolist()])
    for start in range(0, len(rows), 128):
        meaning, words = likeness(tasks, rows[start : start + 128], kept)
        both = (meaning + words) / 2 if meaning.any() else words
        vote += [spread.spread(votes(each), tasks.tools) for each in both]
        strangers = golden[start : start + 128] @ own.T == 0
        pairs.append([float(np.quantile(each[strangers], APART)) for each in (meaning, words) if strangers.any()])
        signs.append(np.stack([meaning.max(1, initial=0.0), words.max(1, initial=0.0)], axis=1))
    said = headed(heads, tasks, rows)
    lists = lists_of(known.sets)
    shares = np.stack([lists.spread(each, tasks.tools) for each in said])
    agreement = np.minimum(shares, np.stack(vote)).sum(1)
    return Held(
        golden=golden,
        head=shares,
        vote=np.stack(vote),
        signs=np.column_stack([np.concatenate(signs), said.max(1), agreement]).astype(np.float32),
        strange=np.asarray(golden[:, ~golds].sum(axis=1) > 0),
        apart=tuple(np.mean([each for each in pairs if each] or [[0.0, 0.0]], axis=0).tolist()),
    )


def parted(tasks: Tasks, rows: Ints, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Tasks kept back with those that share a tool of some tools drawn, and the others."""
    golden = np.zeros((len(tasks), tasks.tools), np.bool_)
    for row, golds in enumerate(tasks.golds):
        golden[row, list(golds)] = True
    hidden = np.zeros(len(tasks), np.bool_)
    for tool in draw.permutation(tasks.tools):
        if hidden.sum() >= min(STRANGE * len(tasks), MOST_KEPT_BACK):
            break
        hidden |= golden[:, tool]
    hidden[rows] = True
    return np.flatnonzero(hidden), np.flatnonzero(~hidden)


def lists_of(rows: Sequence[Sequence[int]]) -> Lists:
    """The tools of each row, to spread shares over."""
    return Lists(*flat(rows), EVEN)


def flat(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Where each row starts in the second, and one more for the end; all rows one after the other."""
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return starts.astype(np.int32), np.asarray([each for row in rows for each in row], np.int32)


def recall(shares: Floats, golden: Floats, k: int = 5) -> Floats:
    """(rows,): the share of the golden tools among the first k."""
    best = np.argsort(-shares, axis=1, kind="stable")[:, :k]
    found: Floats = np.take_along_axis(golden, best, axis=1).sum(1) / golden.sum(1)
    return found


def mixed(held: Sequence[Held]) -> float:
    """The head's part that finds most of what was kept back; the larger of equals."""

    def found(mix: float) -> float:
        known = [recall(shared(each, mix), each.golden)[~each.strange] for each in held]
        return round(float(np.concatenate(known).mean()), 3)

    return max(MIXES, key=lambda mix: (found(mix), mix))


def shared(held: Held, mix: float) -> Floats:
    """(rows, tools)"""
    return np.float32(mix) * held.head + np.float32(1 - mix) * held.vote


def trust(held: Sequence[Held], mix: float, *, reads_vectors: bool) -> Trust:
    """Logistic over the signs: how right it was; strange tasks and others count half each."""
    right = np.concatenate([recall(shared(each, mix), each.golden, 3) for each in held])
    signs = np.concatenate([each.signs for each in held]).astype(np.float64)
    strange = np.concatenate([each.strange for each in held])
    share = np.where(strange, 0.5 / max(strange.sum(), 1), 0.5 / max((~strange).sum(), 1)) * len(strange)
    inputs = np.hstack([signs, np.ones((len(signs), 1))])
    weights = logistic(inputs, right, share)
    while (weights[:-1] < 0).any():
        inputs[:, :-1] *= weights[:-1] > 0
        weights = np.where(inputs.any(axis=0), logistic(inputs, right, share), 0.0)
    meaning, words, sureness, agreement, bias = weights.tolist()
    likeness = signs[~strange, 0 if reads_vectors else 1]
    return Trust(
        bias=bias,
        meaning=meaning,
        words=words,
        sureness=sureness,
        agreement=agreement,
        near=float(np.quantile(likeness, NEAR)),
        far=float(np.mean([each.apart[0 if reads_vectors else 1] for each in held])),
        reads_vectors=reads_vectors,
    )


def logistic(
    inputs: NDArray[np.float64], wanted: NDArray[Any], share: NDArray[Any], ridge: float = 0.1
) -> NDArray[np.float64]:
    """Weights (columns,) by Newton's method; `wanted` (rows,) between 0 and 1, each row counting its `share`."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(30):
        chance = 1.0 / (1.0 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (share * (chance - wanted)) + ridge * weights
        curve = (inputs * (share * chance * (1 - chance))[:, None]).T @ inputs + ridge * np.eye(len(weights))
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-6:
            break
    return weights


# Detection


def detection(words: Sparse, vectors: Floats, needed: NDArray[np.bool_], columns: int) -> Floats:
    """(dimension + columns + 1,): logistic regression on [vector ; words], both answers of equal weight, bias last."""
    size = vectors.shape[1]
    share = np.where(needed, 0.5 / max(needed.sum(), 1), 0.5 / max((~needed).sum(), 1)).astype(np.float32)
    ridge = np.float32(1.0 / (RELAXED * len(needed)))
    row_of = np.repeat(np.arange(len(words)), np.diff(words.starts))
    weights = np.zeros(size + columns + 1, np.float32)
    adam = Adam(weights)
    for step in range(DETECTION_STEPS):
        logits = vectors @ weights[:size] + words.times(weights[size:-1]) + weights[-1]
        error = share * (1.0 / (1.0 + np.exp(-np.clip(logits, -30, 30))) - needed)
        slope = np.concatenate(
            [
                error @ vectors,
                np.bincount(words.columns, error[row_of] * words.values, columns),
                [error.sum()],
            ]
        ).astype(np.float32)
        slope[:-1] += ridge * weights[:-1]
        adam.step(slope, (1.0 - step / DETECTION_STEPS) * DETECTION_RATE)
    return weights


# The method


class MassToolMethod:
    """`Method`."""

    name = NAME
    minimum = MINIMUM

    def train(self, material: Material, progress: Progress) -> bytes:
        """Raises `TooLittle`."""
        return _Training(material, progress).run()


METHOD: Final = MassToolMethod()


class _Training:
    """One training: the tasks read, what was kept back, the heads, the model."""

    def __init__(self, material: Material, progress: Progress) -> None:
        self.material, self.progress = material, progress
        self.draw = np.random.default_rng(material.seed)
        said = [(text, frozenset(each.calls)) for each in material.episodes for text in each.tasks if text.strip()]
        self.with_tools = [(text, calls) for text, calls in said if calls][-MOST:]
        self.without = [text for text, calls in said if not calls][-MOST:]
        if len(self.with_tools) < MINIMUM:
            raise TooLittle(f"{len(self.with_tools)} tasks in words with the calls they took; it takes {MINIMUM}")

    def run(self) -> bytes:
        texts = [text for text, _ in self.with_tools] + self.without
        counts = [grams(text) for text in texts]
        hashes, idf = vocabulary(counts)
        rows = [weighted(each, hashes, idf) for each in counts]
        vectors = self._vectors(texts)
        names = sorted({tool for _, calls in self.with_tools for tool in calls})
        number = {tool: place for place, tool in enumerate(names)}
        golds = tuple(tuple(sorted(number[tool] for tool in calls)) for _, calls in self.with_tools)
        count = len(golds)
        tasks = Tasks(sparse(rows[:count]), vectors[:count], golds, len(names))
        known = classes(golds)
        mix, read, unread = self._believed(tasks, known)
        blind = tasks.without_vectors()
        heads = self._heads(tasks, blind, known, np.arange(count)) if mix > 0 else []
        stage = self._tuned(texts[:count], known) if mix > 0 else {}
        detects = len(self.without) >= LEAST_WITHOUT
        detect = np.zeros(vectors.shape[1] + len(hashes) + 1, np.float32)
        if detects:
            needed = np.arange(len(texts)) < count
            detect = detection(sparse(rows), vectors, needed, len(hashes))
        header = Header(
            tools=tuple(names),
            read=read,
            unread=unread,
            nets=len(heads),
            mix=mix,
            even=EVEN,
            tasks=count,
            familiar=familiar(golds),
            detects=detects,
        )
        self.progress("packing", 1.0)
        arrays: dict[str, NDArray[Any]] = {
            "hashes": hashes,
            "idf": idf.astype(np.float16),
            "detect": detect.astype(np.float16),
        }
        return dumps(header, {**arrays, **_packed(tasks, known, heads), **stage})

    def _tuned(self, texts: Sequence[str], known: Classes) -> dict[str, NDArray[Any]]:
        """The encoder fine-tuned on these tasks and a head on it; {} where nothing could do that, or has it to."""
        from foretool.retrieval.training import masstool_tuned

        weights = masstool_tuned.weights_to_tune(len(texts)) if self.material.queries is not None else None
        if weights is None:
            return {}
        found = masstool_tuned.tune(
            weights, texts, known.of, self.material.seed, lambda share: self.progress("fine-tuning the encoder", share)
        )
        return {
            "tuned_adapter": np.frombuffer(found.adapter, np.uint8),
            "tuned_out": found.out.astype(np.float16),
            "tuned_bias": found.bias,
        }

    def _vectors(self, texts: Sequence[str]) -> Floats:
        embed = self.material.readings or self.material.queries
        if embed is None:
            return np.zeros((len(texts), 0), np.float32)
        found = []
        for start in range(0, len(texts), 256):
            self.progress("reading the tasks", 0.2 * start / len(texts))
            found.append(unit(embed(texts[start : start + 256])))
        return np.concatenate(found)

    def _heads(self, tasks: Tasks, blind: Tasks, known: Classes, rows: Ints) -> list[Trained]:
        """Those that are served: `READERS` and `LISTENERS`."""
        seen = [tasks] * READERS + [blind] * LISTENERS
        each = 0.48 / len(seen)
        return [self._head(one, known, rows, place, 0.5 + each * place, each) for place, one in enumerate(seen)]

    def _head(self, tasks: Tasks, known: Classes, rows: Ints, seed: int, begun: float, part: float) -> Trained:
        def told(share: float) -> None:
            self.progress("learning", begun + part * share)

        return fitted(tasks, known, rows, self.material.seed + seed, told)

    def _believed(self, tasks: Tasks, known: Classes) -> tuple[float, Trust, Trust]:
        """The head's part, and the trust with and without sentence vectors, from tasks that were kept back."""
        order = self.draw.permutation(len(tasks))
        if len(tasks) < FEW:
            parts = np.array_split(order, FOLDS)
        else:
            parts = [order[: min(int(KEPT_BACK * len(tasks)), MOST_KEPT_BACK)]]
        blind = tasks.without_vectors()
        read, unread = [], []
        for place, part in enumerate(parts):
            rows, others = parted(tasks, part, self.draw)
            if not len(others):
                raise TooLittle(f"{len(tasks)} tasks that all took the same tools; there is nothing to tell apart")
            each = 0.15 / len(parts)
            begun = 0.2 + 2 * each * place
            reader = self._head(tasks, known, others, 0, begun, each)
            read.append(held_back(tasks, known, [reader], rows, others))
            listener = self._head(blind, known, others, 0, begun + each, each)
            unread.append(held_back(blind, known, [listener], rows, others))
        mix = mixed(read)
        return (
            mix,
            trust(read, mix, reads_vectors=tasks.vectors.shape[1] > 0),
            trust(unread, mix, reads_vectors=False),
        )


def _packed(tasks: Tasks, known: Classes, heads: Sequence[Trained]) -> dict[str, NDArray[Any]]:
    """The arrays of a model that `rankers.masstool.MassTool` reads."""
    kept = bank(tasks.golds, np.arange(len(tasks)))
    words = sparse([(tasks.words.row(row)) for row in kept.tolist()])
    found: dict[str, NDArray[Any]] = {}
    found["class_starts"], found["class_tools"] = flat(known.sets)
    found["golds_starts"], found["golds_tools"] = flat([tasks.golds[row] for row in kept.tolist()])
    found["bank"] = np.rint(127 * tasks.vectors[kept]).astype(np.int8)
    found["word_starts"], found["word_columns"] = words.starts, words.columns.astype(np.uint16)
    found["word_values"] = words.values.astype(np.float16)
    for number, head in enumerate(heads):
        scales = np.maximum(np.abs(head.rows).max(1), 1e-9) / 127
        found[f"rows{number}"] = np.rint(head.rows / scales[:, None]).astype(np.int8)
        found[f"scales{number}"] = scales.astype(np.float32)
        out = head.out.copy()
        out[SIZE:] *= LOUD
        found[f"out{number}"], found[f"bias{number}"] = out.astype(np.float16), head.bias
    return found
